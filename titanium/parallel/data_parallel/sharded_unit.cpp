#include "titanium/parallel/data_parallel/sharded_unit.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/copy_tensors.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/parallel/data_parallel/float8_shards.h"

namespace titanium::parallel {
namespace {

constexpr Dtype kReduceDtype = at::kFloat;
// Segments begin at multiples of this, so that copies and collectives are aligned for 16-byte access in every dtype.
constexpr int64_t kAlignment = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t shard_elements(const Parameter& parameter) { return volume(parameter.shard.shape); }

// `travelling`: the dtype of the parameter in a buffer whose elements are of dtype `buffer`.
FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int64_t ranks, Dtype buffer,
                       const std::function<Dtype(const Parameter&)>& travelling) {
  const auto bytes = [](Dtype dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); };
  FlatLayout layout{.segments = {}, .ranks = ranks, .elements = 0};
  for (Parameter* parameter : parameters) {
    const Shape& shape = parameter->part.shape;
    const int64_t size = shape.at(static_cast<size_t>(parameter->shard_dim)), rows = ceil_div(size, ranks);
    const int64_t elements = rows * (volume(shape) / size) * bytes(travelling(*parameter)) / bytes(buffer);
    const int64_t runs = volume(Shape(shape.begin(), shape.begin() + parameter->shard_dim));
    layout.segments.push_back({parameter, elements, layout.elements, runs});
    layout.elements += ceil_div(elements, kAlignment) * kAlignment;
  }
  return layout;
}

// The dtype in which a part is gathered: that of the part, or float8 (float8_shards.h).
Dtype travelling_dtype(const Parameter& parameter, Dtype stored, Dtype compute) {
  return travels_as_float8(parameter, compute) ? ops::kE4m3 : part_dtype(parameter, stored, compute);
}

}  // namespace

Dtype part_dtype(const Parameter& parameter, Dtype stored, Dtype compute) {
  const bool is_vector = parameter.global_shape.size() == 1;
  return is_vector && c10::elementSize(stored) > c10::elementSize(compute) ? stored : compute;
}

FlatLayout gather_layout(const std::vector<Parameter*>& parameters, int64_t ranks, Dtype stored, Dtype compute) {
  return flat_layout(parameters, ranks, compute,
                     [=](const Parameter& parameter) { return travelling_dtype(parameter, stored, compute); });
}

FlatLayout reduce_layout(const std::vector<Parameter*>& parameters, int64_t ranks) {
  return flat_layout(parameters, ranks, kReduceDtype, [](const Parameter&) { return kReduceDtype; });
}

ShardContext::ShardContext(Device device, Dtype compute_dtype)
    : device(device), compute_dtype(compute_dtype), pool(device), gather_stream(device), reduce_stream(device) {}

struct ShardedUnit::Reduction {
  explicit Reduction(Device device) : copied(device) {}
  std::vector<Tensor> grads;  // of the parts, until they are copied
  Fence copied;
  Tensor in;    // all ranks' gradients, n flat buffers
  Tensor mine;  // the sum, this rank's flat buffer: of its own, or its place in `in`
  comm::Work work;
  bool scattered = false;  // `mine` holds the sum over the shard group; next is that over replicas
};

ShardedUnit::ShardedUnit(const nn::Unit& unit, DataParallelGroups groups, ShardContext& context)
    : context_(context),
      groups_(std::move(groups)),
      parameters_(unit.parameters),
      gather_(gather_layout(unit.parameters, groups_.shard->size(), unit.parameters[0]->value.scalar_type(),
                            context.compute_dtype)),
      reduce_(reduce_layout(unit.parameters, groups_.shard->size())),
      gathered_(context.device),
      grad_memory_(unit.parameters.size()) {
  const bool travel_as_stored = std::ranges::all_of(unit.parameters, [&](const Parameter* parameter) {
    return parameter->value.device() == context.device && parameter->value.scalar_type() == context.compute_dtype &&
           !travels_as_float8(*parameter, context.compute_dtype);
  });
  if (travel_as_stored) move_values_together();
}

ShardedUnit::~ShardedUnit() = default;

// Values that travel as they are stored live in the flat buffer itself, and need not be copied before they travel.
void ShardedUnit::move_values_together() {
  const c10::AutoGradMode no_grad(false);
  home_ = at::empty({gather_.elements}, at::TensorOptions(context_.compute_dtype).device(context_.device));
  for (const Segment& segment : gather_.segments) {
    Parameter& parameter = *segment.parameter;
    const Tensor place = home_.narrow(0, segment.offset, parameter.value.numel()).view(parameter.shard.shape);
    place.copy_(parameter.value.detach());
    parameter.value = place.detach().requires_grad_(true);
    parameter.value_changed();
  }
}

void ShardedUnit::start_gather() {
  if (whole_.defined() || flat_.defined()) return;
  const SideStream::Scope beside(context_.gather_stream);
  if (home_.defined()) {
    flat_ = gather_.ranks == 1 ? home_ : context_.pool.take(gather_.ranks * gather_.elements, context_.compute_dtype);
    gathering_ = groups_.shard->all_gather(flat_, home_);
    return;
  }
  flat_ = context_.pool.take(gather_.ranks * gather_.elements, context_.compute_dtype);
  const Tensor mine = flat_.narrow(0, groups_.shard->rank() * gather_.elements, gather_.elements);
  find_weight_amax(parameters_, *groups_.shard, context_.device);
  copy_in(mine);
  gathering_ = groups_.shard->all_gather(flat_, mine);
}

void ShardedUnit::finish_gather() {
  if (whole_.defined()) return;
  start_gather();
  {
    const SideStream::Scope beside(context_.gather_stream);
    gathering_->wait();
    gathering_.reset();
    copy_out();
    gathered_.record();
  }
  gathered_.wait();
  for (const Segment& segment : gather_.segments) {
    Parameter& parameter = *segment.parameter;
    const Tensor part = whole_part(segment);
    travels_as_float8(parameter, context_.compute_dtype)
        ? parameter.hold_gathered(Float8Tensor{part, parameter.float8->shard.scale})
        : parameter.hold_gathered(part);
  }
  context_.most_whole_units = std::max(context_.most_whole_units, ++context_.whole_units);
}

void ShardedUnit::copy_in(const Tensor& mine) {
  ops::Tensors to, from;
  for (const Segment& segment : gather_.segments) {
    Parameter& parameter = *segment.parameter;
    const Dtype dtype = travelling_dtype(parameter, parameter.value.scalar_type(), context_.compute_dtype);
    // Offloaded values cross in their own dtype and are cast on the device.
    const Tensor value = dtype == ops::kE4m3 ? quantized_shard(parameter, context_.device).data
                                             : parameter.value.detach().to(context_.device, /*non_blocking=*/true);
    if (value.numel() == 0) continue;
    to.push_back(mine.narrow(0, segment.offset, segment.elements).view(dtype).narrow(0, 0, value.numel()));
    from.push_back(value.flatten());
  }
  ops::copy_tensors(to, from);
}

// From the order of ranks to that of parameters.
void ShardedUnit::copy_out() {
  if (gather_.ranks == 1) {
    whole_ = std::exchange(flat_, Tensor());
    return;
  }
  whole_ = context_.pool.take(gather_.ranks * gather_.elements, context_.compute_dtype);
  const Tensor by_rank = flat_.view({gather_.ranks, gather_.elements});
  ops::Tensors to, from;
  for (const Segment& segment : gather_.segments) {
    const int64_t run = segment.run_elements();
    for (int64_t first = 0; first < segment.elements; first += run) {
      const Tensor place = whole_.narrow(0, gather_.ranks * (segment.offset + first), gather_.ranks * run);
      to.push_back(place.view({gather_.ranks, run}));
      from.push_back(by_rank.narrow(1, segment.offset + first, run));
    }
  }
  ops::copy_tensors(to, from);
  context_.pool.give_back(std::exchange(flat_, Tensor()));
}

Tensor ShardedUnit::whole_part(const Segment& segment) const {
  const Parameter& parameter = *segment.parameter;
  const Dtype dtype = travelling_dtype(parameter, parameter.value.scalar_type(), context_.compute_dtype);
  const Tensor padded = whole_.narrow(0, gather_.ranks * segment.offset, gather_.ranks * segment.elements).view(dtype);
  return padded.narrow(0, 0, volume(parameter.part.shape)).view(parameter.part.shape);
}

void ShardedUnit::release() {
  if (!whole_.defined()) return;
  for (const Segment& segment : gather_.segments) segment.parameter->drop_gathered();
  if (!whole_.is_same(home_)) context_.pool.give_back(whole_);
  whole_ = Tensor();
  --context_.whole_units;
}

bool ShardedUnit::has_grads() const {
  return std::any_of(reduce_.segments.begin(), reduce_.segments.end(),
                     [](const Segment& segment) { return segment.parameter->part_grad.defined(); });
}

void ShardedUnit::copy_grads_in(const std::vector<Tensor>& grads, const Tensor& in) {
  const Tensor by_rank = in.view({reduce_.ranks, reduce_.elements});
  ops::Tensors to, from;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Segment& segment = reduce_.segments[i];
    if (!grads[i].defined()) {
      by_rank.narrow(1, segment.offset, segment.elements).zero_();
      continue;
    }
    const int64_t run = segment.run_elements();
    const Tensor rows = grads[i].reshape({segment.runs, -1});
    for (int64_t row = 0; row < segment.runs; ++row) {
      const Tensor flat = rows.select(0, row), place = by_rank.narrow(1, segment.offset + row * run, run);
      const int64_t full_ranks = flat.numel() / run;
      to.push_back(place.narrow(0, 0, full_ranks));
      from.push_back(flat.narrow(0, 0, full_ranks * run).view({full_ranks, run}));
      const int64_t rest = flat.numel() - full_ranks * run;
      if (rest == 0) continue;
      to.push_back(place.select(0, full_ranks).narrow(0, 0, rest));
      from.push_back(flat.narrow(0, full_ranks * run, rest));
    }
  }
  ops::copy_tensors(to, from);
}

void ShardedUnit::start_reduce() {
  TI_ASSERT(!is_reducing(), "a second reduction of the same unit");
  reduction_ = std::make_unique<Reduction>(context_.device);
  for (const Segment& segment : reduce_.segments) {
    reduction_->grads.push_back(std::exchange(segment.parameter->part_grad, Tensor()));
  }
  Fence computed(context_.device);
  computed.record();
  const SideStream::Scope beside(context_.reduce_stream);
  computed.wait();
  reduction_->in = context_.pool.take(reduce_.ranks * reduce_.elements, kReduceDtype);
  copy_grads_in(reduction_->grads, reduction_->in);
  reduction_->copied.record();
  reduction_->mine = groups_.shard->reduces_in_place()
                         ? reduction_->in.narrow(0, groups_.shard->rank() * reduce_.elements, reduce_.elements)
                         : context_.pool.take(reduce_.elements, kReduceDtype);
  reduction_->work = groups_.shard->reduce_scatter(reduction_->mine, reduction_->in, comm::Reduce::kSum);
}

void ShardedUnit::advance_reduce() {
  // The stream that made the gradients may use their memory again after the copy. It had the time of a unit's backward,
  // so nobody really waits.
  reduction_->copied.wait();
  reduction_->grads.clear();
  const SideStream::Scope beside(context_.reduce_stream);
  reduction_->work->wait();
  if (!reduction_->scattered) {
    reduction_->scattered = true;
    if (groups_.replicate->size() > 1) {
      reduction_->work = groups_.replicate->all_reduce(reduction_->mine, comm::Reduce::kSum);
      return;
    }
  }
  add_to_grads(reduction_->mine);
  context_.pool.give_back(reduction_->in);
  if (!groups_.shard->reduces_in_place()) context_.pool.give_back(reduction_->mine);
  reduction_.reset();
}

void ShardedUnit::add_to_grads(const Tensor& mine) {
  const c10::AutoGradMode no_grad(false);
  ops::Tensors to, from;
  for (size_t i = 0; i < reduce_.segments.size(); ++i) {
    const Segment& segment = reduce_.segments[i];
    Parameter& parameter = *segment.parameter;
    const Tensor sum = mine.narrow(0, segment.offset, shard_elements(parameter)).view(parameter.shard.shape);
    if (parameter.grad.defined()) {
      parameter.grad.add_(sum.to(parameter.grad.device()));
      continue;
    }
    Tensor& memory = grad_memory_[i];
    if (!memory.defined()) {
      const bool pinned = parameter.value.is_cpu() && !context_.device.is_cpu();
      memory = at::empty(parameter.shard.shape, parameter.value.options().requires_grad(false).pinned_memory(pinned));
    }
    // Across devices in the smaller dtype, on one device in one pass.
    const bool crosses = memory.device() != sum.device();
    to.push_back(memory);
    from.push_back(crosses ? sum.to(memory.scalar_type()) : sum);
    parameter.grad = memory;
  }
  ops::copy_tensors(to, from);
}

}  // namespace titanium::parallel
