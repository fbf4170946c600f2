#include "titanium/models/language_model.h"

#include <tuple>

#include "titanium/base/error.h"

namespace titanium::models {

LanguageModel& as_language_model(Model& model) {
  if (auto* language_model = dynamic_cast<LanguageModel*>(&model)) return *language_model;
  throw UsageError(
      "this model does not read texts, as training on them, evaluation and generation need. Use a language model.");
}

std::unique_ptr<LanguageModel> as_language_model(std::unique_ptr<Model> model) {
  LanguageModel& language_model = as_language_model(*model);
  std::ignore = model.release();
  return std::unique_ptr<LanguageModel>(&language_model);
}

Decoding& decoding_of(LanguageModel& model) {
  if (Decoding* decoding = model.decoding()) return *decoding;
  throw UsageError("this model cannot generate text: it has no decoding. Use a model that is a language model.");
}

}  // namespace titanium::models
