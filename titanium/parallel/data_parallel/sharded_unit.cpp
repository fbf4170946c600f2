#include "titanium/parallel/data_parallel/sharded_unit.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/ops/copy_tensors.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/parallel/data_parallel/float8_shards.h"
#include "titanium/tensor/buffer_view.h"

namespace titanium::parallel {
namespace {

constexpr Dtype kReduceDtype = at::kFloat;
// Segments begin at multiples of this, so that copies and collectives are aligned for 16-byte access in every dtype.
constexpr int64_t kAlignment = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

// This rank's flat buffer in `all` of them.
Tensor own_piece(const Tensor& all, const FlatLayout& layout, const comm::Group& group) {
  return buffer_view(all, all.scalar_type(), group.rank() * layout.elements, {layout.elements});
}

// The place in elements of `dtype` of what is `offset` elements of the buffer's own dtype after its beginning.
int64_t first_element(int64_t offset, const Tensor& buffer, Dtype dtype) {
  return offset * buffer.element_size() / static_cast<int64_t>(c10::elementSize(dtype));
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
  const Tensor mine = own_piece(flat_, gather_, *groups_.shard);
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

// Offloaded values cross in their own dtype and are cast on the device.
Tensor ShardedUnit::value_on_device(const Parameter& parameter) const {
  if (parameter.value.device() == context_.device) return parameter.value;
  return parameter.value.detach().to(context_.device, /*non_blocking=*/true);
}

void ShardedUnit::copy_in(const Tensor& mine) {
  ops::Tensors to, from;
  for (const Segment& segment : gather_.segments) {
    Parameter& parameter = *segment.parameter;
    const Dtype dtype = travelling_dtype(parameter, parameter.value.scalar_type(), context_.compute_dtype);
    const Tensor value =
        dtype == ops::kE4m3 ? quantized_shard(parameter, context_.device).data : value_on_device(parameter);
    if (value.numel() == 0) continue;
    to.push_back(buffer_view(mine, dtype, first_element(segment.offset, mine, dtype), value.sizes()));
    from.push_back(value);
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
  const Dtype dtype = context_.compute_dtype;
  ops::Tensors to, from;
  for (const Segment& segment : gather_.segments) {
    const int64_t run = segment.run_elements();
    for (int64_t first = segment.offset; first < segment.offset + segment.elements; first += run) {
      to.push_back(buffer_view(whole_, dtype, gather_.ranks * first, {gather_.ranks, run}));
      from.push_back(buffer_view(flat_, dtype, first, {gather_.ranks, run}, {gather_.elements, 1}));
    }
  }
  ops::copy_tensors(to, from);
  context_.pool.give_back(std::exchange(flat_, Tensor()));
}

Tensor ShardedUnit::whole_part(const Segment& segment) const {
  const Parameter& parameter = *segment.parameter;
  const Dtype dtype = travelling_dtype(parameter, parameter.value.scalar_type(), context_.compute_dtype);
  return buffer_view(whole_, dtype, first_element(gather_.ranks * segment.offset, whole_, dtype), parameter.part.shape);
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
  ops::Tensors to, from;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Segment& segment = reduce_.segments[i];
    if (!grads[i].defined()) {
      buffer_view(in, kReduceDtype, segment.offset, {reduce_.ranks, segment.elements}, {reduce_.elements, 1}).zero_();
      continue;
    }
    const Tensor grad = grads[i].contiguous();
    const Dtype dtype = grad.scalar_type();
    const int64_t run = segment.run_elements(), row_elements = grad.numel() / segment.runs;
    const int64_t full_ranks = row_elements / run, rest = row_elements % run;
    for (int64_t row = 0; row < segment.runs; ++row) {
      const int64_t place = segment.offset + row * run, begin = row * row_elements;
      to.push_back(buffer_view(in, kReduceDtype, place, {full_ranks, run}, {reduce_.elements, 1}));
      from.push_back(buffer_view(grad, dtype, begin, {full_ranks, run}));
      if (rest == 0) continue;
      to.push_back(buffer_view(in, kReduceDtype, place + full_ranks * reduce_.elements, {rest}));
      from.push_back(buffer_view(grad, dtype, begin + full_ranks * run, {rest}));
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
  reduction_->mine = groups_.shard->reduces_in_place() ? own_piece(reduction_->in, reduce_, *groups_.shard)
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
    const Tensor sum = buffer_view(mine, kReduceDtype, segment.offset, parameter.shard.shape);
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
