"""The least time that a training step can take, per token, from measured ceilings: products and attention at their sustained rates,
everything else at the rate of a copy."""

import dataclasses


@dataclasses.dataclass
class Model:
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    tied: bool = False

    @property
    def head_dim(self):
        return self.dim // self.heads

    @property
    def kv(self):
        return self.kv_heads * self.head_dim

    @property
    def linear(self):
        """Elements of all weights that take part in products."""
        block = 2 * self.dim * self.dim + 2 * self.dim * self.kv + 3 * self.dim * self.hidden
        return self.layers * block + self.dim * self.vocabulary

    @property
    def parameters(self):
        return self.linear + (0 if self.tied else self.dim * self.vocabulary)


MODELS = {
    "8B": Model(4096, 32, 32, 8, 14336, 128256),
    "3B": Model(3072, 28, 24, 8, 8192, 128256),
    "1B": Model(2048, 16, 32, 8, 8192, 128256),
    "qwen3 1.7B": Model(2048, 28, 16, 8, 6144, 151936, tied=True),
}


def floor_seconds(model, tokens, tokens_per_step, state_bytes, ceilings, float8=False):
    """Per token, nothing recomputed. `state_bytes` is 2 or 4: of parameters, gradients and moments. With `float8` the blocks' products
    are in float8; what they read is read once more, in bf16, and written twice, in float8."""
    rates = {int(length): rate for length, rate in ceilings["attention"].items()}
    attention = rates[min(rates, key=lambda length: abs(length - tokens))]
    head = 6 * model.dim * model.vocabulary
    products = head / ceilings["linear"] + (6 * model.linear - head) / ceilings["float8" if float8 else "linear"]
    pairs = 2 * tokens * model.heads * model.head_dim * model.layers
    attending = pairs / attention["forward"] + 2.5 * pairs / attention["backward"]
    # Norms, their gradients and their repetition, rope, SwiGLU, in bf16.
    moved = model.layers * (32 * model.dim + 8 * (model.dim + model.kv) + 18 * model.hidden)
    if float8:
        moved += model.layers * 4 * (5 * model.dim + 2 * model.kv + 3 * model.hidden)
    updating = 7 * state_bytes * model.parameters / tokens_per_step
    return products + attending + (moved + updating) / ceilings["copy"]
