#include "titanium/parallel/data_parallel/replicate.h"

#include <ATen/ops/empty.h>

#include <ranges>

namespace titanium::parallel {
namespace {

int64_t bytes_of(const nn::Unit& unit) {
  int64_t bytes = 0;
  for (const Parameter* parameter : unit.parameters) bytes += static_cast<int64_t>(parameter->value.nbytes());
  return bytes;
}

// One flat tensor in which every parameter has its place, aligned for 16-byte access. All have the dtype of the first.
Tensor place_grads(const std::vector<Parameter*>& parameters, Device device) {
  const auto room = [](const Parameter& parameter) { return (parameter.value.numel() + 7) / 8 * 8; };
  int64_t elements = 0;
  for (const Parameter* parameter : parameters) elements += room(*parameter);
  const Tensor flat = at::empty({elements}, at::TensorOptions(parameters[0]->value.scalar_type()).device(device));
  int64_t first = 0;
  for (Parameter* parameter : parameters) {
    parameter->grad_place = flat.narrow(0, first, parameter->value.numel()).view(parameter->value.sizes());
    first += room(*parameter);
  }
  return flat;
}

}  // namespace

class Replicate::Hook : public nn::UnitHook {
 public:
  Hook(Replicate& owner, size_t bucket) : owner_(owner), bucket_(bucket) {}
  void after_backward() override { owner_.finish_unit(bucket_); }

 private:
  Replicate& owner_;
  size_t bucket_;
};

Replicate::Replicate(const std::vector<nn::Unit*>& units, const Mesh& mesh, Device device,
                     const ReplicateOptions& options)
    : group_(data_parallel_groups(*units.at(0), mesh).replicate), device_(device), stream_(device) {
  int64_t bytes = options.bucket_bytes;  // of the current bucket; the first unit opens one
  for (nn::Unit* unit : std::views::reverse(units)) {
    if (bytes >= options.bucket_bytes) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += bytes_of(*unit);
    Bucket& bucket = buckets_.back();
    ++bucket.units;
    bucket.parameters.insert(bucket.parameters.end(), unit->parameters.begin(), unit->parameters.end());
    unit->enclose(std::make_shared<Hook>(*this, buckets_.size() - 1));
  }
  for (Bucket& bucket : buckets_) bucket.grads = place_grads(bucket.parameters, device);
}

Replicate::~Replicate() = default;

void Replicate::begin_micro_batch(bool last) {
  last_ = last;
  for (Bucket& bucket : buckets_) bucket.finished_units = 0;
}

void Replicate::finish_unit(size_t bucket) {
  if (++buckets_[bucket].finished_units < buckets_[bucket].units || !last_) return;
  // Those that set out earlier had the time of this bucket's backward.
  for (Bucket& earlier : buckets_) {
    if (reduced_ && earlier.work != nullptr) finish_sum(earlier);
  }
  start_sum(buckets_[bucket]);
}

bool Replicate::when_reduced(Reduced reduced) {
  reduced_ = std::move(reduced);
  return true;
}

void Replicate::start_sum(Bucket& bucket) {
  for (Parameter* parameter : bucket.parameters) {
    if (!parameter->grad.defined()) parameter->grad = parameter->grad_place.zero_();
  }
  Fence computed(device_);
  computed.record();
  const SideStream::Scope beside(stream_);
  computed.wait();
  bucket.work = group_->all_reduce(bucket.grads, comm::Reduce::kSum);
}

void Replicate::finish_sum(Bucket& bucket) {
  if (!reduced_) {
    bucket.work->wait();
  } else {
    const SideStream::Scope beside(stream_);
    bucket.work->wait();
    reduced_(bucket.parameters);
  }
  bucket.work.reset();
  bucket.is_summed = true;
}

void Replicate::end_micro_batch() {
  if (!last_) return;
  for (Bucket& bucket : buckets_) {
    // The first unit has no gradient to hand on, so nobody has told that it is finished.
    if (bucket.work == nullptr && !bucket.is_summed) start_sum(bucket);
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.work != nullptr) finish_sum(bucket);
    bucket.is_summed = false;
  }
  if (!reduced_) return;
  Fence reduced(device_);
  {
    const SideStream::Scope beside(stream_);
    reduced.record();
  }
  reduced.wait();
}

}  // namespace titanium::parallel
