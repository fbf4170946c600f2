#include "titanium/cli/checkpoint.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/cli/arguments.h"

namespace titanium::cli {
namespace {

int verify(const std::string& path) {
  std::vector<std::string> damage;
  size_t tensors = 0;
  try {
    const auto source = checkpoint::open_weights(path);
    tensors = source->tensors().size();
    damage = source->find_damage();
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
