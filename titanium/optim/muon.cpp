#include "titanium/optim/muon.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <unordered_set>

#include "titanium/base/error.h"
#include "titanium/optim/grad_norm.h"

namespace titanium::optim {
namespace {

std::vector<Parameter*> all_parameters(const std::vector<MuonGroup>& groups) {
  std::vector<Parameter*> all;
  for (const MuonGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

double factor_of(MuonScale scale, const Box& matrix) {
  const auto rows = static_cast<double>(matrix_rows(matrix)), columns = static_cast<double>(matrix_columns(matrix));
  if (scale == MuonScale::kOriginal) return std::sqrt(std::max(1.0, rows / columns));
  return 0.2 * std::sqrt(std::max(rows, columns));
}

// The box of the parameter in a tensor that is cut like it.
Tensor inside(const Tensor& tensor, const Parameter& parameter, Box box) {
  for (size_t dim = 0; dim < box.offset.size(); ++dim) box.offset[dim] -= parameter.shard.offset[dim];
  return box_of(tensor, box);
}

}  // namespace

MuonScale parse_muon_scale(std::string_view name) {
  if (name == "original") return MuonScale::kOriginal;
  if (name == "match_rms_adamw") return MuonScale::kMatchRmsAdamw;
  throw UsageError(fmt::format("Muon's scale \"{}\" is unknown. Use original or match_rms_adamw.", name));
}

// One update of parameters of one group. With a norm, whether anything happens is decided on the device: the factors of
// decay and update are tensors there, and gradients that are not finite become zeros.
class Muon::Update {
 public:
  Update(const MuonOptions& options, double lr, const Tensor& norm) : options_(options), lr_(lr) {
    if (norm.defined()) finite_ = at::isfinite(norm);
  }

  // Enters the gradient, which is clipped already, into the buffer.
  void accumulate(Parameter& parameter, const Tensor& buffer) const {
    if (!parameter.grad.defined()) parameter.grad = at::zeros(buffer.sizes(), buffer.options());
    if (!finite_.defined()) {
      buffer.lerp_(parameter.grad, 1 - options_.momentum);
      return;
    }
    parameter.grad.masked_fill_(finite_.logical_not(), 0);
    buffer.lerp_(parameter.grad, finite_.to(buffer.scalar_type()).mul_(1 - options_.momentum));
  }

  Tensor direction(const Parameter& parameter, const Tensor& buffer, const Box& box) const {
    const Tensor averaged = inside(buffer, parameter, box);
    if (!options_.nesterov) return averaged.to(options_.newton_schulz.dtype);
    return at::lerp(inside(parameter.grad, parameter, box), averaged, options_.momentum)
        .to(options_.newton_schulz.dtype);
  }

  void apply(const Parameter& parameter, const Box& box, const Tensor& update) const {
    const Tensor value = inside(parameter.value.detach(), parameter, box);
    const double factor = lr_ * factor_of(options_.scale, matrix_of(parameter, box));
    const double decay = lr_ * options_.weight_decay;
    Tensor result = value.scalar_type() == at::kFloat ? value : value.to(at::kFloat);
    const Tensor wide = update.to(result.device(), at::kFloat);
    if (finite_.defined()) {
      const Tensor acts = finite_.to(result.device(), at::kDouble);
      result.mul_(acts.mul(-decay).add_(1)).sub_(wide.mul(acts.mul(factor)));
    } else {
      result.mul_(1 - decay).sub_(wide, factor);
    }
    if (!result.is_same(value)) value.copy_(result);
  }

 private:
  // The matrix that the box is a part of.
  static Box matrix_of(const Parameter& parameter, const Box& box) {
    Box matrix = box;
    const size_t leading = box.shape.size() - 2;
    for (size_t dim = leading; dim < box.shape.size(); ++dim) matrix.shape[dim] = parameter.global_shape[dim];
    return matrix;
  }

  const MuonOptions& options_;
  double lr_;
  Tensor finite_;
};

Muon::Muon(const std::vector<MuonGroup>& groups, std::shared_ptr<MatrixExchange> exchange)
    : Optimizer(all_parameters(groups)), exchange_(std::move(exchange)) {
  if (exchange_ == nullptr) exchange_ = std::make_shared<WholeMatrices>();
  for (const MuonGroup& group : groups) {
    groups_.push_back({group.options, group.lr_factor, group.parameters});
    for (const Parameter* parameter : group.parameters) {
      TI_ASSERT(parameter->global_shape.size() >= 2, "{} is no matrix", parameter->fqn);
    }
  }
}

void Muon::materialize() {
  for (const Parameter* parameter : parameters()) {
    const Tensor& value = parameter->value;
    TI_ASSERT(value.defined(), "{} is not materialised", parameter->fqn);
    buffers_[parameter] = at::zeros(value.sizes(), value.options().requires_grad(false));
  }
}

void Muon::step_some(const std::vector<Parameter*>& parameters, double lr, const Tensor& norm, double max_norm) {
  const c10::NoGradGuard no_grad;
  const std::unordered_set<const Parameter*> wanted(parameters.begin(), parameters.end());
  for (const Group& group : groups_) {
    std::vector<Parameter*> chosen;
    std::ranges::copy_if(group.parameters, std::back_inserter(chosen), [&](auto* p) { return wanted.contains(p); });
    if (chosen.empty()) continue;
    if (norm.defined() && std::isfinite(max_norm)) clip_grads(chosen, max_norm, norm);
    const Update update(group.options, lr * group.lr_factor, norm);
    for (Parameter* parameter : chosen) update.accumulate(*parameter, buffers_.at(parameter));
    exchange_->run(
        chosen, {.dtype = group.options.newton_schulz.dtype,
                 .read = [&](const Parameter& p, const Box& box) { return update.direction(p, buffers_.at(&p), box); },
                 .compute = [&](const Tensor& matrix) { return orthogonalize(matrix, group.options.newton_schulz); },
                 .write = [&](const Parameter& p, const Box& box, const Tensor& x) { update.apply(p, box, x); }});
    for (Parameter* parameter : chosen) parameter->value_changed();
  }
}

std::vector<StateTensor> Muon::state() const {
  std::vector<StateTensor> state;
  for (const Parameter* parameter : parameters()) {
    state.push_back({parameter, "momentum_buffer", buffers_.at(parameter)});
  }
  return state;
}

int64_t Muon::state_bytes(const Parameter& parameter, Dtype dtype) const {
  return volume(parameter.shard.shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

// Beside the buffers of the exchange: the matrix, its successor, two squares that are no larger, and an fp32 copy.
int64_t Muon::working_bytes() const {
  int64_t most = 0;
  for (const Group& group : groups_) {
    const auto element = static_cast<int64_t>(c10::elementSize(group.options.newton_schulz.dtype));
    for (const Parameter* parameter : group.parameters) {
      const Box matrix = matrices_of(*parameter).front();
      most = std::max(most, exchange_->buffer_elements() * element + volume(matrix.shape) * (4 * element + 4));
    }
  }
  return most;
}

const Muon::Group& Muon::group_of(const Parameter& parameter) const {
  const auto found = std::ranges::find_if(
      groups_, [&](const Group& group) { return std::ranges::count(group.parameters, &parameter) > 0; });
  TI_ASSERT(found != groups_.end(), "{} is in no group", parameter.fqn);
  return *found;
}

NamedOptions Muon::options_of(const Parameter& parameter, const LearningRate& lr) const {
  const Group& group = group_of(parameter);
  const MuonOptions& options = group.options;
  const auto& coefficients = options.newton_schulz.coefficients;
  return {
      {"lr", lr.now * group.lr_factor},
      {"weight_decay", options.weight_decay},
      {"momentum", options.momentum},
      {"nesterov", options.nesterov},
      {"ns_coefficients", std::vector<double>(coefficients.begin(), coefficients.end())},
      {"eps", options.newton_schulz.eps},
      {"ns_steps", options.newton_schulz.steps},
      {"adjust_lr_fn", options.scale == MuonScale::kOriginal ? "original" : "match_rms_adamw"},
      {"initial_lr", lr.initial * group.lr_factor},
  };
}

}  // namespace titanium::optim
