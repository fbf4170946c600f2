// Replicated data parallelism (DDP): every rank has the whole model, gradients are summed bucket by bucket while the
// backward goes on.
#pragma once

#include <memory>

#include "titanium/comm/group.h"
#include "titanium/nn/unit.h"
#include "titanium/parallel/data_parallel/data_parallel.h"
#include "titanium/tensor/streams.h"

namespace titanium::parallel {

struct ReplicateOptions {
  int64_t bucket_bytes = int64_t{100} << 20;
};

// Installs hooks on the units, whose parameters are materialised. A bucket holds the gradients of whole units, last
// units first, and at least `bucket_bytes` of them; operators write into it directly. Its sum sets out when its last
// unit has finished its backward, in the last micro-batch of a step only.
class Replicate : public DataParallel {
 public:
  Replicate(const std::vector<nn::Unit*>& units, const Mesh& mesh, Device device, const ReplicateOptions& options);
  ~Replicate() override;

  void begin_micro_batch(bool last) override;
  void end_micro_batch() override;
  bool when_reduced(Reduced reduced) override;

 private:
  class Hook;
  struct Bucket {
    std::vector<Parameter*> parameters;
    size_t units = 0;
    size_t finished_units = 0;
    Tensor grads;     // flat
    comm::Work work;  // while it is summed
    bool is_summed = false;
  };
  void finish_unit(size_t bucket);
  void start_sum(Bucket& bucket);
  void finish_sum(Bucket& bucket);

  comm::GroupPtr group_;
  Device device_;
  SideStream stream_;
  std::vector<Bucket> buckets_;
  bool last_ = true;
  Reduced reduced_;
};

}  // namespace titanium::parallel
