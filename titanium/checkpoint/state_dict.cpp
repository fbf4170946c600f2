#include "titanium/checkpoint/state_dict.h"

#include <set>

#include "titanium/base/error.h"
#include "titanium/parallel/placement.h"

namespace titanium::checkpoint {
namespace {

constexpr size_t kSmallestCut = 1 << 20;

std::string optimizer_name(const std::string& kind, const std::string& fqn, const std::string& key) {
  return fmt::format("{}.{}.{}", kind, fqn, key);
}

// "" or "model.": where the checkpoint has the model.
std::string model_prefix(const DcpReader& reader, std::span<const nn::StoredTensor> stored) {
  const auto holds = [&](const std::string& prefix) {
    return std::ranges::any_of(stored, [&](const auto& tensor) { return reader.contains(prefix + tensor.fqn); });
  };
  return !holds("") && holds("model.") ? "model." : "";
}

void check_names(const DcpReader& reader, std::span<const nn::StoredTensor> stored, const std::string& prefix) {
  std::set<std::string> wanted;
  std::vector<std::string> missing;
  for (const nn::StoredTensor& tensor : stored) {
    wanted.insert(prefix + tensor.fqn);
    if (!reader.contains(prefix + tensor.fqn)) missing.push_back(tensor.fqn);
  }
  TI_CHECK(missing.empty(),
           "{} has {} of the model's {} tensors; {} is missing. Check model.name and model.flavor against the "
           "checkpoint.",
           reader.folder().string(), stored.size() - missing.size(), stored.size(), missing.front());
  for (const auto& [name, entry] : reader.metadata().entries) {
    const auto path = reader.metadata().paths.find(name);
    const bool outside = path != reader.metadata().paths.end() && path->second.size() > 1;
    const bool of_model =
        std::holds_alternative<DcpTensor>(entry) && (prefix.empty() ? !outside : name.starts_with(prefix));
    TI_CHECK(!of_model || wanted.contains(name),
             "{} has \"{}\", which the model does not have. Check model.name and model.flavor against the checkpoint.",
             reader.folder().string(), name);
  }
}

// This rank's share of a tensor that is cut like its parameter.
void add_share(StateDict& state, const std::string& name, const DcpPath& path, const Parameter& parameter, size_t turn,
               const Tensor& tensor, const Shares& shares, std::optional<Dtype> dtype = std::nullopt) {
  const std::optional<Box> share = shares.of(parameter, turn, tensor.nbytes());
  if (!share) return;
  Box inside = *share;
  for (size_t dim = 0; dim < inside.offset.size(); ++dim) inside.offset[dim] -= parameter.shard.offset[dim];
  const Tensor own = box_of(tensor.detach(), inside);
  state.tensors.push_back({.name = name,
                           .global_shape = parameter.global_shape,
                           .box = *share,
                           .tensor = dtype ? own.to(*dtype) : own,
                           .path = path});
}

}  // namespace

bool Shares::is_first_of_stage() const { return rank_ % (dims_.world() / dims_.pp) == 0; }

bool Shares::is_first_holder(const Parameter& parameter) const {
  return &parameter != left_out_ && is_first_of_stage();
}

std::optional<Box> Shares::of(const Parameter& parameter, size_t turn, size_t bytes) const {
  if (&parameter == left_out_) return std::nullopt;
  const auto [place, holders] = parallel::replica_of(parameter, dims_, rank_);
  Box share = parameter.shard;
  if (holders > 1 && (bytes < kSmallestCut || share.shape.empty())) {
    if (static_cast<int64_t>(turn) % holders != place) return std::nullopt;
  } else if (holders > 1) {
    const int64_t rows = share.shape[0];
    const int64_t begin = rows * place / holders;
    share.offset[0] += begin;
    share.shape[0] = rows * (place + 1) / holders - begin;
  }
  return volume(share.shape) == 0 ? std::nullopt : std::optional(share);
}

void add_object(StateDict& state, const std::string& first, const std::string& second, PickleValue value) {
  state.objects.push_back({.name = first + "." + second, .value = std::move(value), .path = {first, second}});
}

void add_model(StateDict& state, const nn::Module& model, const Shares& shares, std::optional<Dtype> dtype) {
  const std::vector<Parameter*> parameters = model.parameters();
  for (size_t turn = 0; turn < parameters.size(); ++turn) {
    const Parameter& parameter = *parameters[turn];
    add_share(state, parameter.fqn, {parameter.fqn}, parameter, turn, parameter.value, shares, dtype);
  }
  if (!shares.is_first_of_stage()) return;
  for (const nn::Buffer* buffer : model.persistent_buffers()) {
    const bool cast = dtype && c10::isFloatingType(buffer->dtype);
    state.tensors.push_back({.name = buffer->fqn,
                             .global_shape = buffer->shape,
                             .box = whole_box(buffer->shape),
                             .tensor = cast ? buffer->value.to(*dtype) : buffer->value,
                             .path = {buffer->fqn}});
  }
}

void add_optimizer(StateDict& state, const optim::Adam& optimizer, const OptimizerFacts& facts, const Shares& shares) {
  size_t turn = 0;
  for (const optim::StateTensor& part : optimizer.state()) {
    const std::string key = optimizer_name("state", part.parameter->fqn, part.name);
    const DcpPath path = {"optimizer", key};
    if (part.tensor.dim() > 0) {
      add_share(state, "optimizer." + key, path, *part.parameter, turn, part.tensor, shares);
      continue;
    }
    ++turn;  // a scalar stands beside the two moments of every parameter
    if (!shares.is_first_holder(*part.parameter)) continue;
    state.tensors.push_back({.name = "optimizer." + key, .tensor = part.tensor.detach(), .path = path});
    const std::vector<std::pair<const char*, PickleValue>> options = {
        {"lr", facts.lr},
        {"betas", PickleValue::tuple({facts.options.beta1, facts.options.beta2})},
        {"eps", facts.options.eps},
        {"weight_decay", facts.options.weight_decay},
        {"amsgrad", false},
        {"maximize", false},
        {"foreach", facts.implementation == "foreach"},
        {"capturable", false},
        {"differentiable", false},
        {"fused", facts.implementation == "fused"},
        {"decoupled_weight_decay", facts.options.decoupled},
        {"initial_lr", facts.initial_lr},
    };
    for (const auto& [name, value] : options) {
      add_object(state, "optimizer", optimizer_name("param_groups", part.parameter->fqn, name), value);
    }
  }
}

void load_model(const DcpReader& reader, const nn::Module& model, const nn::Module& whole) {
  const std::vector<nn::StoredTensor> stored = whole.stored_tensors();
  const std::string prefix = model_prefix(reader, stored);
  check_names(reader, stored, prefix);
  std::vector<DcpRequest> requests;
  for (const Parameter* parameter : model.parameters()) {
    requests.push_back({prefix + parameter->fqn, parameter->global_shape, parameter->shard, parameter->value.detach()});
  }
  for (const nn::Buffer* buffer : model.persistent_buffers()) {
    requests.push_back({prefix + buffer->fqn, buffer->shape, whole_box(buffer->shape), buffer->value});
  }
  reader.read(requests);
  for (Parameter* parameter : model.parameters()) parameter->value_changed();
}

void load_optimizer(const DcpReader& reader, const optim::Adam& optimizer) {
  std::vector<DcpRequest> requests;
  for (const optim::StateTensor& part : optimizer.state()) {
    const bool scalar = part.tensor.dim() == 0;
    requests.push_back({"optimizer." + optimizer_name("state", part.parameter->fqn, part.name),
                        scalar ? Shape() : part.parameter->global_shape, scalar ? Box() : part.parameter->shard,
                        part.tensor});
  }
  reader.read(requests);
}

bool has_state(const DcpReader& reader, const std::string& first) {
  const auto& entries = reader.metadata().entries;
  const auto found = entries.lower_bound(first + ".");
  return found != entries.end() && found->first.starts_with(first + ".");
}

}  // namespace titanium::checkpoint
