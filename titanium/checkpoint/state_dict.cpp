#include "titanium/checkpoint/state_dict.h"

#include "titanium/base/error.h"
#include "titanium/checkpoint/tensor_names.h"
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
  std::vector<std::string> wanted, present;
  for (const nn::StoredTensor& tensor : stored) wanted.push_back(prefix + tensor.fqn);
  for (const auto& [name, entry] : reader.metadata().entries) {
    const auto path = reader.metadata().paths.find(name);
    const bool outside = path != reader.metadata().paths.end() && path->second.size() > 1;
    const bool of_model =
        std::holds_alternative<DcpTensor>(entry) && (prefix.empty() ? !outside : name.starts_with(prefix));
    if (of_model) present.push_back(name);
  }
  check_tensor_names(reader.folder().string(), wanted, present);
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

PickleValue to_pickle(const optim::OptionValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return {};
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* given = std::get_if<bool>(&value)) return *given;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto& numbers = std::get<std::vector<double>>(value);
  return PickleValue::tuple({numbers.begin(), numbers.end()});
}

void add_param_groups(StateDict& state, const Parameter& parameter, const optim::NamedOptions& options) {
  for (const auto& [name, value] : options) {
    add_object(state, "optimizer", optimizer_name("param_groups", parameter.fqn, name), to_pickle(value));
  }
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

void add_optimizer(StateDict& state, const optim::Optimizer& optimizer, const optim::LearningRate& lr,
                   const Shares& shares) {
  size_t turn = 0;  // of the parameter that the state belongs to
  const Parameter* before = nullptr;
  for (const optim::StateTensor& part : optimizer.state()) {
    const Parameter& parameter = *part.parameter;
    const bool is_first = &parameter != before;
    if (is_first && before != nullptr) ++turn;
    before = &parameter;
    const std::string key = optimizer_name("state", parameter.fqn, part.name);
    const DcpPath path = {"optimizer", key};
    const bool scalar = part.tensor.dim() == 0;
    if (!scalar) add_share(state, "optimizer." + key, path, parameter, turn, part.tensor, shares);
    if (!shares.is_first_holder(parameter)) continue;
    if (scalar) state.tensors.push_back({.name = "optimizer." + key, .tensor = part.tensor.detach(), .path = path});
    if (is_first) add_param_groups(state, parameter, optimizer.options_of(parameter, lr));
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
  reader.read(requests, /*threads=*/0, "loading the model");
  for (Parameter* parameter : model.parameters()) parameter->value_changed();
}

void load_optimizer(const DcpReader& reader, const optim::Optimizer& optimizer) {
  std::vector<DcpRequest> requests;
  for (const optim::StateTensor& part : optimizer.state()) {
    const bool scalar = part.tensor.dim() == 0;
    requests.push_back({"optimizer." + optimizer_name("state", part.parameter->fqn, part.name),
                        scalar ? Shape() : part.parameter->global_shape, scalar ? Box() : part.parameter->shard,
                        part.tensor});
  }
  reader.read(requests, /*threads=*/0, "loading the optimizer");
}

bool has_state(const DcpReader& reader, const std::string& first) {
  const auto& entries = reader.metadata().entries;
  const auto found = entries.lower_bound(first + ".");
  return found != entries.end() && found->first.starts_with(first + ".");
}

}  // namespace titanium::checkpoint
