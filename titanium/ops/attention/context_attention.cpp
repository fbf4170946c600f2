#include "titanium/ops/attention/context_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/attention/sinks.h"
#include "titanium/ops/copy_tensors.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

Dtype precise(Dtype dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// [B, s, H, E] -> [B * chunks, c, H, E]
Tensor by_chunk(const Tensor& x_BsHE, int64_t chunks) { return x_BsHE.unflatten(1, {chunks, -1}).flatten(0, 1); }
// [B * chunks, c, H, E] -> [B, s, H, E]
Tensor by_row(const Tensor& x, int64_t chunks) { return x.unflatten(0, {-1, chunks}).flatten(1, 2); }

struct KeysAndValues {
  Tensor k, v;
};

Tensor pack(const Tensor& k, const Tensor& v) { return at::cat({k.flatten(2), v.flatten(2)}, 2); }

// What is saved for the backward, and what both passes need to know.
struct Context {
  ContextExchange& exchange;
  Visible visible;  // without chunks
  SoftmaxArgs softmax;
  int64_t kv_heads, value_dim;
  Tensor q_BsHE = {}, kv_BsW = {};
  Attended attended = {};  // over all keys

  int64_t chunks() const { return exchange.share().chunks_per_rank(); }
  // The same library for all rectangles, so that one random state will do.
  Visible inside(const Rectangle& at) const {
    Visible seen = {.causal = false, .sizes_vary = visible.documents != nullptr || visible.window > 0};
    if (at.distance > 0) {
      seen.window = visible.window;
      seen.first_query = at.distance;
    }
    return seen;
  }
  std::vector<Rectangle> rectangles(const KeyValuePart& part) const {
    return visible_rectangles(exchange.share(), q_BsHE.size(0), q_BsHE.size(1) / chunks(), part.chunks, visible);
  }
  KeysAndValues unpack(const Tensor& kv_BTW) const {
    const int64_t values = kv_heads * value_dim, keys = kv_BTW.size(2) - values;
    return {kv_BTW.narrow(2, 0, keys).unflatten(2, {kv_heads, -1}),
            kv_BTW.narrow(2, keys, values).unflatten(2, {kv_heads, -1})};
  }
};

Tensor queries(const Tensor& x_BsHE, const Rectangle& at) {
  return x_BsHE.narrow(0, at.row, at.rows).narrow(1, at.first_query, at.queries);
}
Tensor query_sums(const Tensor& x_BHs, const Rectangle& at) {
  return x_BHs.narrow(0, at.row, at.rows).narrow(2, at.first_query, at.queries);
}
Tensor keys(const Tensor& kv_BTW, const Rectangle& at) {
  return kv_BTW.narrow(0, at.row, at.rows).narrow(1, at.first_key, at.keys);
}

// Each chunk with itself.
Attended attend_chunks(const Context& context) {
  const auto [k, v] = context.unpack(context.kv_BsW);
  const int64_t chunks = context.chunks();
  Attended own = attend(by_chunk(context.q_BsHE, chunks), by_chunk(k, chunks), by_chunk(v, chunks), context.visible,
                        context.softmax.scale);
  own.out_BSHV = by_row(own.out_BSHV, chunks);
  own.log_sum_exp_BHS = own.log_sum_exp_BHS.unflatten(0, {-1, chunks}).transpose(1, 2).flatten(2);
  return own;
}

kernels::AttentionResult describe(const Tensor& out_BSHV, const Tensor& sums_BHS) {
  return {element_type(out_BSHV), out_BSHV.data_ptr(), static_cast<float*>(sums_BHS.data_ptr()),
          out_BSHV.stride(0),     sums_BHS.stride(0),  sums_BHS.stride(1)};
}

// `whole` over more keys.
void merge(const Attended& whole, const Attended& part, const Rectangle& at) {
  const Tensor sums = query_sums(whole.log_sum_exp_BHS, at);
  if (uses_kernels(whole.out_BSHV)) {
    const Tensor& out = part.out_BSHV;
    launch(kernels::MergeAttentionArgs{describe(queries(whole.out_BSHV, at), sums),
                                       describe(out, part.log_sum_exp_BHS.contiguous()), out.size(0), out.size(1),
                                       out.size(2), out.size(3)});
    return;
  }
  const Tensor weight = at::sigmoid(part.log_sum_exp_BHS - sums).transpose(1, 2).unsqueeze(3);
  const Tensor out = queries(whole.out_BSHV, at);
  out.copy_(out.to(sums.scalar_type()).lerp(part.out_BSHV.to(sums.scalar_type()), weight));
  sums.copy_(at::logaddexp(sums, part.log_sum_exp_BHS));
}

Attended forward(const Context& context) {
  const auto parts = context.exchange.bring(context.kv_BsW, std::nullopt);
  Attended whole = attend_chunks(context);
  const Dtype dtype = whole.out_BSHV.scalar_type();
  whole.log_sum_exp_BHS = whole.log_sum_exp_BHS.contiguous();
  for (int64_t taken = 0; const auto part = parts->next(); ++taken) {
    // What is merged twice is rounded as often as the library rounds its own results.
    if (taken == 2) whole.out_BSHV = whole.out_BSHV.to(precise(dtype));
    for (const Rectangle& at : context.rectangles(*part)) {
      const auto [k, v] = context.unpack(keys(part->kv_BTW, at));
      merge(whole, attend(queries(context.q_BsHE, at), k, v, context.inside(at), context.softmax.scale), at);
    }
  }
  if (context.softmax.sinks != nullptr) whole = add_sinks(whole, *context.softmax.sinks);
  whole.out_BSHV = whole.out_BSHV.to(dtype);
  return whole;
}

// Gradients of each chunk's attention to itself: of queries, and of keys and values.
struct Gradients {
  Tensor q_BsHE, kv_BsW;
};

Gradients backward_of_chunks(const Context& context, const Tensor& grad) {
  const auto [k, v] = context.unpack(context.kv_BsW);
  const int64_t chunks = context.chunks();
  const Attended& whole = context.attended;
  const Attended own = {by_chunk(whole.out_BSHV, chunks),
                        whole.log_sum_exp_BHS.unflatten(2, {chunks, -1}).transpose(1, 2).flatten(0, 1),
                        whole.random_state};
  const Tensors grads = attend_backward(by_chunk(grad, chunks), by_chunk(context.q_BsHE, chunks), by_chunk(k, chunks),
                                        by_chunk(v, chunks), own, context.visible, context.softmax.scale);
  return {by_row(grads[0], chunks), by_row(pack(grads[1], grads[2]), chunks).to(precise(grad.scalar_type()))};
}

// Room for the gradients of a part of which `written` will be written and the rest added to.
Tensor zeros_around(const Rectangle& written, const Tensor& like, const at::TensorOptions& options) {
  if (written.rows < like.size(0)) return at::zeros(like.sizes(), options);
  const Tensor grads = at::empty(like.sizes(), options);
  const int64_t end = written.first_key + written.keys;
  grads.narrow(1, 0, written.first_key).zero_();
  grads.narrow(1, end, grads.size(1) - end).zero_();
  return grads;
}

// The sequences of x one by one, [T, H * E] each.
void append_sequences(Tensors& to, const Tensor& x_BTHE) {
  for (const Tensor& x_THE : x_BTHE.unbind(0)) to.push_back(x_THE.flatten(1));
}

// Gradients of the part's keys and values; those of the queries are added to `grads`. Undefined if nothing is visible.
Tensor backward_of_part(const Context& context, const Tensor& grad, const KeyValuePart& part, const Gradients& grads) {
  std::vector<Rectangle> rectangles = context.rectangles(part);
  if (rectangles.empty()) return {};
  // The largest comes first, because its gradients can be written instead of added.
  std::ranges::stable_sort(rectangles, std::greater(), &Rectangle::keys);
  const Tensor grad_kv = zeros_around(rectangles[0], part.kv_BTW, grads.kv_BsW.options());
  for (const Rectangle& at : rectangles) {
    const auto [k, v] = context.unpack(keys(part.kv_BTW, at));
    const Attended whole = {queries(context.attended.out_BSHV, at), query_sums(context.attended.log_sum_exp_BHS, at),
                            context.attended.random_state};
    const Tensors found = attend_backward(queries(grad, at), queries(context.q_BsHE, at), k, v, whole,
                                          context.inside(at), context.softmax.scale);
    const auto [grad_k, grad_v] = context.unpack(keys(grad_kv, at));
    Tensors sums, addends, first_sums, first_addends;
    append_sequences(sums, queries(grads.q_BsHE, at));
    append_sequences(addends, found[0]);
    const bool is_first = &at == &rectangles[0];
    for (const Tensor& sum : {grad_k, grad_v}) append_sequences(is_first ? first_sums : sums, sum);
    for (const Tensor& addend : {found[1], found[2]}) append_sequences(is_first ? first_addends : addends, addend);
    copy_tensors(first_sums, first_addends);
    add_tensors(sums, addends);
  }
  return grad_kv;
}

Tensors backward(const Context& context, const Tensor& grad) {
  const Dtype dtype = context.q_BsHE.scalar_type();
  if (context.softmax.sinks != nullptr) accumulate_sink_grad(grad, context.attended, *context.softmax.sinks);
  const auto parts = context.exchange.bring(context.kv_BsW, precise(dtype));
  Gradients grads = backward_of_chunks(context, grad);
  for (int64_t taken = 0; const auto part = parts->next(); ++taken) {
    if (taken == 2) grads.q_BsHE = grads.q_BsHE.to(precise(dtype));  // as in the forward
    parts->give_back(backward_of_part(context, grad, *part, grads));
  }
  const Tensor grad_kv = grads.kv_BsW.add(parts->collect()).to(dtype);
  const auto [grad_k, grad_v] = context.unpack(grad_kv);
  return {grads.q_BsHE.to(dtype), grad_k, grad_v};
}

// Adds the rows [first, first + count) of a part to what one chunk of queries sees, in as few stretches as possible.
void add_keys(std::vector<Rectangle>& found, size_t begin, const Rectangle& stretch) {
  Rectangle* const last = found.size() > begin ? &found.back() : nullptr;
  const bool whole = last != nullptr && last->distance == 0 && stretch.distance == 0;
  if (whole && last->queries == stretch.queries && last->first_key + last->keys == stretch.first_key) {
    last->keys += stretch.keys;
  } else {
    found.push_back(stretch);
  }
}

// Queries of neighbouring chunks that see the same keys, all of them, become one rectangle.
void join_queries(std::vector<Rectangle>& rectangles) {
  for (size_t i = 0; i < rectangles.size(); ++i) {
    if (rectangles[i].distance > 0) continue;
    for (size_t j = i + 1; j < rectangles.size(); ++j) {
      Rectangle joined = rectangles[i];
      joined.first_query += joined.queries;
      joined.queries = rectangles[j].queries;
      if (joined != rectangles[j]) continue;
      rectangles[i].queries += rectangles[j].queries;
      rectangles.erase(rectangles.begin() + static_cast<std::ptrdiff_t>(j--));
    }
  }
}

// What a window leaves of a rectangle whose first key stands `distance` positions before the first query.
std::optional<Rectangle> inside_window(Rectangle at, int64_t distance, int64_t window) {
  if (window == 0) return at;
  const int64_t hidden = std::max<int64_t>(0, distance - window + 1);  // keys that the first query does not see
  if (hidden >= at.keys) return std::nullopt;
  at.first_key += hidden;
  at.keys -= hidden;
  distance -= hidden;
  at.queries = std::min(at.queries, at.keys - 1 + window - distance);  // up to the last that sees the last key
  if (distance + at.queries > window) at.distance = distance;
  return at;
}

}  // namespace

std::vector<Rectangle> visible_rectangles(const SequenceShare& share, int64_t batch, int64_t length,
                                          const std::vector<int64_t>& key_chunks, const Visible& visible) {
  const DocumentsPtr& documents = visible.documents;
  const std::vector<int64_t> query_chunks = chunks_of(share, share.rank);
  const auto chunks = static_cast<int64_t>(query_chunks.size());
  const int64_t cases = documents != nullptr ? batch : 1;  // rows of the batch that differ in what they see
  std::vector<Rectangle> found;
  for (int64_t row = 0; row < cases; ++row) {
    for (int64_t i = 0; i < chunks; ++i) {
      const size_t begin = found.size();
      const int64_t start = query_chunks[i] * length;
      const auto [before, inside] =
          documents != nullptr ? documents->continued[row * chunks + i] : Documents::Continued{start, length};
      for (size_t part = 0; part < key_chunks.size(); ++part) {
        const bool hidden_chunk =
            visible.causal ? key_chunks[part] >= query_chunks[i] : key_chunks[part] == query_chunks[i];
        if (hidden_chunk) continue;
        const int64_t hidden = std::max<int64_t>(0, start - before - key_chunks[part] * length);
        if (hidden >= length) continue;
        const Rectangle at = {
            row, batch / cases, i * length, inside, static_cast<int64_t>(part) * length + hidden, length - hidden};
        const int64_t distance = start - key_chunks[part] * length - hidden;
        if (const auto seen = inside_window(at, distance, visible.window)) add_keys(found, begin, *seen);
      }
    }
  }
  join_queries(found);
  return found;
}

Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Visible& visible,
                         ContextExchange& exchange, const SoftmaxArgs& softmax) {
  const TraceScope scope("context_attention");
  TI_ASSERT(q.size(1) % exchange.share().chunks_per_rank() == 0, "{} tokens in {} chunks", q.size(1),
            exchange.share().chunks_per_rank());
  Context context = {exchange, visible, softmax, k.size(2), v.size(3), q.detach()};
  {
    const c10::AutoGradMode no_grad(false);
    const int64_t whole = q.size(1) * exchange.share().ranks;
    if (visible.chunk > 0 && visible.chunk < whole) {
      context.visible.documents =
          cut_documents(visible.documents, visible.chunk, q.size(0), q.size(1), q.device(), exchange.share());
    }
    context.visible.chunk = 0;
    if (visible.window >= whole) context.visible.window = 0;
    context.kv_BsW = pack(k.detach(), v.detach());
    context.attended = forward(context);
  }
  const Tensor out = context.attended.out_BSHV;
  context.attended.out_BSHV = out.detach();
  record({q, k, v}, {out}, [context](const Tensors& grads) -> Tensors { return backward(context, grads[0]); });
  return out;
}

}  // namespace titanium::ops
