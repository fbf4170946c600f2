// Muon: momentum whose matrices are orthogonalised before they are applied.
#pragma once

#include "titanium/optim/matrix_exchange.h"
#include "titanium/optim/newton_schulz.h"
#include "titanium/optim/optimizer.h"

namespace titanium::optim {

// An orthogonal matrix has elements of another size than Adam's update. The factor on the learning rate makes up for
// it.
enum class MuonScale {
  kOriginal,       // sqrt(max(1, rows / columns))
  kMatchRmsAdamw,  // 0.2 sqrt(max(rows, columns)): as large as AdamW's, so that its learning rate can be used
};

// "original" or "match_rms_adamw" as in TOML files. Throws UsageError on another name.
MuonScale parse_muon_scale(std::string_view name);

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  MuonScale scale = MuonScale::kMatchRmsAdamw;
  NewtonSchulzOptions newton_schulz;
};

struct MuonGroup {
  std::vector<Parameter*> parameters;
  MuonOptions options;
  double lr_factor = 1;
};

// As torch.optim.Muon: with the gradient g,
//   buffer = momentum * buffer + (1 - momentum) * g
//   update = orthogonalize((1 - momentum) * g + momentum * buffer)    without Nesterov: of the buffer
//   value  = (1 - lr * weight_decay) * value - lr * scale * update
// for each matrix of a parameter: [rows, columns] is one, [E, rows, columns] are E. The state is the buffer, in the
// parameter's dtype. A missing gradient counts as zeros. Weights that are not fp32 are rounded once.
class Muon : public Optimizer {
 public:
  // The exchange brings the matrices together; one that is null is that of a rank which has them whole.
  explicit Muon(const std::vector<MuonGroup>& groups, std::shared_ptr<MatrixExchange> exchange = nullptr);

  void materialize() override;
  void step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm = {},
                 double max_norm = std::numeric_limits<double>::infinity()) override;
  std::vector<StateTensor> state() const override;
  int64_t state_bytes(const Parameter& parameter, Dtype dtype) const override;
  int64_t working_bytes() const override;
  NamedOptions options_of(const Parameter& parameter, const LearningRate& lr) const override;

 private:
  struct Group {
    MuonOptions options;
    double lr_factor;
    std::vector<Parameter*> parameters;
  };
  class Update;
  const Group& group_of(const Parameter& parameter) const;

  std::vector<Group> groups_;
  std::map<const Parameter*, Tensor> buffers_;
  std::shared_ptr<MatrixExchange> exchange_;
};

}  // namespace titanium::optim
