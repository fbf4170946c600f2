#include "titanium/models/model_weights.h"

#include <c10/core/GradMode.h>

#include <set>

#include "titanium/base/error.h"
#include "titanium/base/nearest_name.h"
#include "titanium/base/progress.h"
#include "titanium/checkpoint/torch_dtype.h"

namespace titanium::models {
namespace {

constexpr std::string_view kRemedy = "Check model.flavor against the source of the weights.";
constexpr std::string_view kBelow = "model.";

using Places = std::map<std::string, HuggingFaceTensor>;

// Where the parameters would be, for each of the ways to name them.
Places places_by_our_names(const LanguageModel& model, std::string_view prefix) {
  Places places;
  for (const Parameter* parameter : model.parameters()) {
    places[parameter->fqn] = {.name = std::string(prefix) + parameter->fqn, .head_rows = 0, .stand_in = ""};
  }
  return places;
}

Places places_by_their_names(const LanguageModel& model, const checkpoint::WeightsSource& source) {
  Places places;
  for (const Parameter* parameter : model.parameters()) {
    HuggingFaceTensor place = model.hugging_face_tensor(parameter->fqn);
    if (!source.contains(place.name) && source.contains(place.stand_in)) place.name = place.stand_in;
    places[parameter->fqn] = std::move(place);
  }
  return places;
}

void check_present(const Places& places, const checkpoint::WeightsSource& source) {
  std::vector<std::string> missing, names;
  for (const auto& [fqn, place] : places) {
    if (!source.contains(place.name)) missing.push_back(place.name);
  }
  if (missing.empty()) return;
  for (const auto& [name, tensor] : source.tensors()) names.push_back(name);
  const auto near = nearest_name(missing.front(), names);
  throw Error(fmt::format("{} lacks {} of the model's {} tensors, such as \"{}\"{}. {}", source.path(), missing.size(),
                          places.size(), missing.front(), near ? fmt::format(" (the nearest is \"{}\")", *near) : "",
                          kRemedy));
}

}  // namespace

bool is_training_state(std::string_view name) {
  for (const std::string_view part : {"optimizer.", "lr_scheduler.", "dataloader.", "train_state."}) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

ModelWeights::ModelWeights(const LanguageModel& model, const checkpoint::WeightsSource& source) : source_(source) {
  int64_t most = -1;
  for (Places& places : std::vector{places_by_our_names(model, ""), places_by_our_names(model, kBelow),
                                    places_by_their_names(model, source)}) {
    const auto found =
        std::ranges::count_if(places, [&](const auto& place) { return source.contains(place.second.name); });
    if (found > most) places_ = std::move(places), most = found;
  }
  check_present(places_, source);
  for (const Parameter* parameter : model.parameters()) {
    const std::string& name = places_.at(parameter->fqn).name;
    const checkpoint::SourceTensor& tensor = source.tensor(name);
    TI_CHECK(tensor.shape == parameter->global_shape, "{}: {} is [{}], but [{}] in the model. {}", source.path(), name,
             fmt::join(tensor.shape, ", "), fmt::join(parameter->global_shape, ", "), kRemedy);
    TI_CHECK(c10::isFloatingType(tensor.dtype),
             "{}: {} has dtype {}, but a weight has floating-point numbers. Convert it to one of float32, bfloat16 and "
             "float16.",
             source.path(), name, checkpoint::torch_dtype(tensor.dtype).name);
  }
  const bool below = places_.begin()->second.name == std::string(kBelow) + places_.begin()->first;
  check_unexpected(model, below ? std::string(kBelow) : "");
}

void ModelWeights::check_unexpected(const LanguageModel& model, const std::string& prefix) const {
  std::set<std::string> known;
  for (const auto& [fqn, place] : places_) known.insert(place.name);
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : source_.tensors()) {
    if (known.contains(name) || is_training_state(name)) continue;
    // Below a prefix is the model, beside it may be anything.
    if (!name.starts_with(prefix) || model.is_redundant(name.substr(prefix.size()))) continue;
    unexpected.push_back(name);
  }
  TI_CHECK(unexpected.empty(), "{} has {} tensors that the model does not have, such as \"{}\". {}", source_.path(),
           unexpected.size(), unexpected.front(), kRemedy);
}

Dtype ModelWeights::dtype(const std::string& fqn) const { return source_.tensor(places_.at(fqn).name).dtype; }

void ModelWeights::read(const std::string& fqn, const Box& box, const Tensor& destination) const {
  const HuggingFaceTensor& place = places_.at(fqn);
  for (const RowRun& run : row_runs(place, box.offset[0], box.shape[0])) {
    Box theirs = box;
    theirs.offset[0] = run.theirs;
    theirs.shape[0] = run.count;
    const int64_t first = run.ours - box.offset[0];
    source_.read(place.name, theirs, destination.slice(0, first, first + (run.count - 1) * run.step + 1, run.step));
  }
}

void load_weights(LanguageModel& model, const checkpoint::WeightsSource& source) {
  const auto whole = model.part({whole_stage(model.block_count())});  // `model` may be a part of it
  const ModelWeights weights(*whole, source);
  const c10::NoGradGuard no_grad;
  const std::vector<Parameter*> parameters = model.parameters();
  Progress progress("loading weights", static_cast<int64_t>(parameters.size()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    weights.read(parameters[i]->fqn, parameters[i]->shard, parameters[i]->value.detach());
    parameters[i]->value_changed();
    progress.update(static_cast<int64_t>(i) + 1);
  }
}

}  // namespace titanium::models
