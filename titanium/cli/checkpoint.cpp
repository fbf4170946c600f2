#include "titanium/cli/checkpoint.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/progress.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/cli/arguments.h"

namespace titanium::cli {
namespace {

// One sentence for each tensor or value that cannot be read or has changed.
std::vector<std::string> find_damage(const checkpoint::WeightsSource& source) {
  std::vector<std::string> names = source.values(), damage;
  for (const auto& [name, tensor] : source.tensors()) names.push_back(name);
  Progress progress("verifying", static_cast<int64_t>(names.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      source.verify(names[i]);
    } catch (const Error& error) {
      if (damage.empty() || damage.back() != error.what()) damage.emplace_back(error.what());
    }
    progress.update(static_cast<int64_t>(i) + 1);
  }
  return damage;
}

int verify(const std::string& path) {
  std::vector<std::string> damage;
  size_t tensors = 0;
  try {
    const auto source = checkpoint::open_weights(path);
    tensors = source->tensors().size();
    damage = find_damage(*source);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    damage.emplace_back(error.what());
  }
  for (const std::string& sentence : damage) fmt::print("{}\n", sentence);
  if (damage.empty()) fmt::print("{}: {} tensors, all complete and unchanged.\n", path, tensors);
  return damage.empty() ? 0 : 1;
}

}  // namespace

int run_checkpoint(Arguments args) {
  CLI::App app("Checks checkpoints.", "checkpoint");
  app.require_subcommand(1);
  CLI::App& command = *app.add_subcommand("verify",
                                          "Reads a checkpoint of any format and compares it with its checksums, where "
                                          "the format has them: DCP and files of\n"
                                          "torch.save do, Hugging Face weights do not. Prints a line for everything "
                                          "that is missing or has changed, and ends\n"
                                          "with exit code 1 if there is any.");
  std::string path;
  command.add_option("DIR", path, "Checkpoint")->required();
  if (!parse_arguments(app, args)) return 0;
  return verify(path);
}

}  // namespace titanium::cli
