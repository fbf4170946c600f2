// Keys and values that are spread over ranks. B batch, s tokens of a rank, T of a part, W columns of the keys and
// values of a token.
#pragma once

#include <memory>
#include <optional>

#include "titanium/ops/sequence_share.h"

namespace titanium::ops {

// Keys and values of some chunks of the sequence, one chunk after the other.
struct KeyValuePart {
  Tensor kv_BTW;  // all heads of keys, then all heads of values
  std::vector<int64_t> chunks;
};

// The keys and values of all ranks, this one's own included, as they arrive. Every chunk is in one part.
class KeyValueParts {
 public:
  virtual ~KeyValueParts() = default;
  // Waits for the next part; the one after it is then on its way. Nothing after the last.
  virtual std::optional<KeyValuePart> next() = 0;
  // Gradients of the part that `next` gave last, which it takes over; undefined: there are none. Once for every part.
  virtual void give_back(const Tensor& grad_BTW) = 0;
  // After the last part: the gradients of this rank's own keys and values, summed over all ranks.
  virtual Tensor collect() = 0;
};

// What context parallelism does inside attention: Note [Attention over parts]. Operators take it as an argument;
// parallel/ implements it. All ranks call it alike.
class ContextExchange {
 public:
  virtual ~ContextExchange() = default;
  virtual const SequenceShare& share() const = 0;
  // Starts the all-gather or the ring of keys and values; `kv` are this rank's, contiguous. With `gradient_dtype` every
  // part has to be given back in it, and be collected.
  virtual std::unique_ptr<KeyValueParts> bring(const Tensor& kv_BsW, std::optional<Dtype> gradient_dtype) = 0;
};

}  // namespace titanium::ops
