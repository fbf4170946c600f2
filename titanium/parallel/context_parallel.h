// Context parallelism: the ranks of the axis "cp" share each sequence.
#pragma once

#include <memory>

#include "titanium/comm/group.h"
#include "titanium/config/job_config.h"
#include "titanium/ops/attention/key_value_bundle.h"
#include "titanium/parallel/parallel_dims.h"

namespace titanium::parallel {

enum class RotateMethod {
  kAllGather,  // all-gather of keys and values; reduce-scatter of their gradients
  kAllToAll,   // a ring: bundles of parts go from rank to rank, their gradients follow them
};

// parallelism.context_parallel_rotate_method.
RotateMethod rotate_method(const config::Parallelism& options);

// What the world's rank `rank` has of each sequence; everything without context parallelism.
ops::SequenceShare sequence_share(const config::Parallelism& options, const ParallelDims& dims, int rank);

// The exchange of keys and values over `group`, whose ranks are those of `share`. Nothing waits before a part is asked
// for. Bundles of rings travel by all-to-all, in which every rank sends to one and receives from one; how much they
// hold: Note [Bundles in a ring].
std::unique_ptr<ops::ContextExchange> make_context_exchange(comm::GroupPtr group, const ops::SequenceShare& share,
                                                            RotateMethod method,
                                                            int64_t keys_at_once = ops::kKeysAtOnce);

// What one rank has of the sequences of a micro-batch.
struct SequenceSize {
  int64_t batch = 1;
  int64_t tokens = 0;  // of each
  int64_t width = 0;   // elements of a token's keys and values
};

// Elements of keys and values, and of their gradients, that the exchange holds at most at a time.
struct ExchangeBuffers {
  int64_t values = 0;     // in the compute dtype
  int64_t gradients = 0;  // in fp32
};
ExchangeBuffers exchange_buffers(const ops::SequenceShare& share, RotateMethod method, const SequenceSize& size);

}  // namespace titanium::parallel
