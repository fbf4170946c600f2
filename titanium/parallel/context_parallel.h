// Context parallelism: the ranks of the axis "cp" share each sequence.
#pragma once

#include <memory>

#include "titanium/comm/group.h"
#include "titanium/config/job_config.h"
#include "titanium/ops/context_exchange.h"
#include "titanium/parallel/parallel_dims.h"

namespace titanium::parallel {

enum class RotateMethod {
  kAllGather,  // everybody's keys and values at once; their gradients are reduced and scattered
  kAllToAll,   // a ring: a part goes from rank to rank, its gradients behind it
};

// parallelism.context_parallel_rotate_method.
RotateMethod rotate_method(const config::Parallelism& options);

// What the world's rank `rank` has of each sequence; everything without context parallelism.
ops::SequenceShare sequence_share(const config::Parallelism& options, const ParallelDims& dims, int rank);

// The exchange of keys and values over `group`, whose ranks are those of `share`. Nothing waits before a part is asked
// for. Parts of rings travel by all-to-all, in which every rank sends to the next one and receives from the one before.
std::unique_ptr<ops::ContextExchange> make_context_exchange(comm::GroupPtr group, const ops::SequenceShare& share,
                                                            RotateMethod method);

// Elements of keys and values, and of their gradients, that the exchange holds at most at a time, where each of `batch`
// sequences has `elements` of them on this rank.
struct ExchangeBuffers {
  int64_t values = 0;     // in the compute dtype
  int64_t gradients = 0;  // in fp32
};
ExchangeBuffers exchange_buffers(const ops::SequenceShare& share, RotateMethod method, int64_t batch, int64_t elements);

}  // namespace titanium::parallel
