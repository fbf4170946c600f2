#include "titanium/models/model_weights.h"

#include <c10/core/GradMode.h>

#include <set>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/expanded_weights.h"
#include "titanium/checkpoint/tensor_names.h"
#include "titanium/checkpoint/torch_file/dtype.h"

namespace titanium::models {
namespace {

constexpr std::string_view kBelow = "model.";

using Places = std::map<std::string, std::vector<HuggingFacePiece>>;

// Where the parameters would be, for each of the ways to name them.
Places places_by_our_names(const Model& model, std::string_view prefix) {
  Places places;
  for (const auto& [fqn, shape] : model.stored_tensors()) {
    places[fqn] = {whole_piece(std::string(prefix) + fqn, shape)};
  }
  return places;
}

Places places_by_their_names(const Model& model, const checkpoint::WeightsSource& source) {
  Places places;
  if (model.hugging_face() == nullptr) return places;
  for (const auto& [fqn, shape] : model.stored_tensors()) {
    auto& pieces = places[fqn] = model.hugging_face()->pieces(fqn, shape);
    for (HuggingFacePiece& piece : pieces) {
      if (!source.contains(piece.name) && source.contains(piece.stand_in)) piece.name = piece.stand_in;
    }
  }
  return places;
}

Places places_by_names_of_others(const Model& model) {
  Places places;
  if (model.hugging_face() == nullptr) return places;
  for (const auto& [fqn, shape] : model.stored_tensors()) {
    places[fqn] = model.hugging_face()->other_pieces(fqn, shape);
  }
  return places;
}

// Each once, in ascending order.
std::vector<std::string> names_of(const Places& places) {
  std::set<std::string> names;
  for (const auto& [fqn, pieces] : places) {
    for (const HuggingFacePiece& piece : pieces) names.insert(piece.name);
  }
  return {names.begin(), names.end()};
}

std::unique_ptr<const checkpoint::WeightsSource> expand_if_quantised(const checkpoint::WeightsSource& source) {
  if (!checkpoint::find_quantised(source)) return nullptr;
  return std::make_unique<checkpoint::ExpandedWeights>(source);
}

void check_tensor(const HuggingFacePiece& piece, const checkpoint::WeightsSource& source) {
  const checkpoint::SourceTensor& tensor = source.tensor(piece.name);
  TI_CHECK(tensor.shape == piece.shape(), "{}: {} is [{}], but [{}] in the model. {}", source.path(), piece.name,
           fmt::join(tensor.shape, ", "), fmt::join(piece.shape(), ", "), checkpoint::kOtherModel);
  TI_CHECK(c10::isFloatingType(tensor.dtype),
           "{}: {} has dtype {}, but a weight has floating-point numbers. Convert it to one of float32, bfloat16 and "
           "float16.",
           source.path(), piece.name, checkpoint::torch_dtype(tensor.dtype).name);
}

}  // namespace

bool is_training_state(std::string_view name) {
  for (const std::string_view part : {"optimizer.", "lr_scheduler.", "dataloader.", "train_state."}) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

ModelWeights::ModelWeights(const Model& model, const checkpoint::WeightsSource& source)
    : expanded_(expand_if_quantised(source)), source_(expanded_ ? *expanded_ : source) {
  int64_t most = -1;
  for (Places& places : std::vector{places_by_our_names(model, ""), places_by_our_names(model, kBelow),
                                    places_by_their_names(model, source_), places_by_names_of_others(model)}) {
    const auto found =
        std::ranges::count_if(names_of(places), [&](const std::string& name) { return source_.contains(name); });
    if (found > most) places_ = std::move(places), most = found;
  }
  check_names(model);
  for (const auto& [fqn, pieces] : places_) {
    for (const HuggingFacePiece& piece : pieces) check_tensor(piece, source_);
  }
}

void ModelWeights::check_names(const Model& model) const {
  const std::vector<std::string> wanted = names_of(places_);
  const auto& [first, pieces] = *places_.begin();
  // Below a prefix is the model, beside it may be anything.
  const bool is_below = !pieces.empty() && pieces.front().name == std::string(kBelow) + first;
  const std::string_view prefix = is_below ? kBelow : "";
  const auto is_redundant = [&](const std::string& name) {
    return model.hugging_face() != nullptr && model.hugging_face()->is_redundant(name);
  };
  std::vector<std::string> present, redundant;
  for (const auto& [name, tensor] : source_.tensors()) {
    const bool of_model = !is_training_state(name) && name.starts_with(prefix);
    const bool is_wanted = std::ranges::binary_search(wanted, name);
    if (!is_wanted && !of_model) continue;
    (is_wanted || !is_redundant(name.substr(prefix.size())) ? present : redundant).push_back(name);
  }
  checkpoint::check_tensor_names(source_.path(), wanted, present);
  if (redundant.empty()) return;
  log_info("{}: {} tensors have no place in this model and are passed over, such as {}", source_.path(),
           redundant.size(), printable(redundant.front()));
}

Dtype ModelWeights::dtype(const std::string& fqn) const {
  const auto& pieces = places_.at(fqn);
  return pieces.empty() ? at::kFloat : source_.tensor(pieces.front().name).dtype;
}

void ModelWeights::read(const std::string& fqn, const Box& box, const Tensor& destination) const {
  const auto& pieces = places_.at(fqn);
  if (pieces.empty()) {
    destination.zero_();
    return;
  }
  for_each_run(pieces, box, destination, [&](const HuggingFacePiece& piece, const Box& theirs, const Tensor& view) {
    source_.read(piece.name, theirs, view);
  });
}

void load_weights(Model& model, const checkpoint::WeightsSource& source) {
  const auto whole = model.whole();  // `model` may be a part of it
  const ModelWeights weights(*whole, source);
  const c10::NoGradGuard no_grad;
  const std::vector<Parameter*> parameters = model.parameters();
  int64_t bytes = 0, done = 0;
  for (const Parameter* parameter : parameters) bytes += static_cast<int64_t>(parameter->value.nbytes());
  Progress progress("loading weights", bytes, ProgressUnit::kBytes);
  for (Parameter* parameter : parameters) {
    weights.read(parameter->fqn, parameter->shard, parameter->value.detach());
    parameter->value_changed();
    progress.update(done += static_cast<int64_t>(parameter->value.nbytes()));
  }
  for (const nn::Buffer* buffer : model.persistent_buffers()) {
    weights.read(buffer->fqn, {.offset = Shape(buffer->shape.size(), 0), .shape = buffer->shape}, buffer->value);
  }
}

}  // namespace titanium::models
