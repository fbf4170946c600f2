#include "titanium/config/schema/extension.h"

#include <fmt/format.h>

#include <array>

#include "titanium/base/error.h"

namespace titanium::config {
namespace {

struct Module {
  std::string_view name;
  Extension extension;
};

// The first of each extension is the one that messages name; the others are its names in other versions.
constexpr std::array<Module, 7> kModules = {{
    {"torchtitan.models.flux.job_config", Extension::kFlux},
    {"torchtitan.experiments.flux.job_config", Extension::kFlux},
    {"torchtitan.components.ft.config", Extension::kFaultTolerance},
    {"torchtitan.components.ft.config.job_config", Extension::kFaultTolerance},
    {"torchtitan.experiments.ft.config", Extension::kFaultTolerance},
    {"torchtitan.experiments.ft.config.job_config", Extension::kFaultTolerance},
    {"torchtitan.experiments.ft.job_config", Extension::kFaultTolerance},
}};

}  // namespace

std::optional<Extension> find_extension(std::string_view module) {
  if (module.empty()) return Extension::kNone;
  for (const Module& known : kModules) {
    if (known.name == module) return known.extension;
  }
  return std::nullopt;
}

std::string extension_module(Extension extension) {
  for (const Module& known : kModules) {
    if (known.extension == extension) return std::string(known.name);
  }
  TI_ASSERT(false, "an extension without a module");
}

std::string extension_modules_text() {
  return fmt::format(R"("{}" and "{}")", extension_module(Extension::kFlux),
                     extension_module(Extension::kFaultTolerance));
}

bool is_selected(const Option& option, const JobConfig& config) {
  return option.extension() == Extension::kNone ||
         option.extension() == find_extension(config.job.custom_config_module);
}

}  // namespace titanium::config
