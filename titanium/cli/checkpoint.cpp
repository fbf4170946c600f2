#include "titanium/cli/checkpoint.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/cli/arguments.h"

namespace titanium::cli {
namespace {

int verify(const std::string& path) {
  checkpoint::WeightsSource::Verification found;
  size_t tensors = 0;
  try {
    const auto source = checkpoint::open_weights(path);
    tensors = source->tensors().size();
    found = source->verify();
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    found.damage.emplace_back(error.what());
  }
  for (const std::string& sentence : found.damage) fmt::print("{}\n", sentence);
  if (found.damage.empty()) fmt::print("{}: {} tensors, complete, {}.\n", path, tensors, found.checked);
  return found.damage.empty() ? 0 : 1;
}

}  // namespace

int run_checkpoint(Arguments args) {
  CLI::App app("Checks checkpoints.", "checkpoint");
  app.require_subcommand(1);
  CLI::App& command = *app.add_subcommand("verify",
                                          "Reads a checkpoint of any format and compares it with the checksums that it "
                                          "has: those of titanium.json in what\n"
                                          "Titanium wrote, or torch's own. Says which they were. Prints a line for "
                                          "everything that is missing or has changed,\n"
                                          "and ends with exit code 1 if there is any.");
  std::string path;
  command.add_option("DIR", path, "Checkpoint")->required();
  if (!parse_arguments(app, args)) return 0;
  return verify(path);
}

}  // namespace titanium::cli
