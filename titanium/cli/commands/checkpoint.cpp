// titanium checkpoint: lists what a run has saved and checks it for damage.
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/text/thousands.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/cli/command_line.h"

namespace titanium::cli {
namespace {

int list(const std::string& root) {
  const std::vector<checkpoint::ListedStep> steps = checkpoint::list_steps(root);
  if (steps.empty()) throw UsageError(fmt::format("{} has no checkpoints: no folders step-<N>. Check the path.", root));
  for (const auto& step : steps) {
    fmt::print("{}: {} files, {} bytes{}\n", checkpoint::step_folder(root, step.step).string(), step.files,
               with_thousands_separators(step.bytes), step.whole ? "" : ", not whole: it is never loaded");
  }
  return 0;
}

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
  CommandLine app("Lists and checks checkpoints.", "checkpoint");
  CommandLine& command = app.subcommand("verify",
                                        "Reads a checkpoint of any format and compares it with the checksums that it "
                                        "has: those of titanium.json in what "
                                        "Titanium wrote, or torch's own. Says which they were. Prints a line for "
                                        "everything that is missing or has changed, "
                                        "and ends with exit code 1 if there is any.");
  std::string path;
  command.option("DIR", path, "Checkpoint").required();
  CommandLine& listing = app.subcommand("list", "Lists the steps that a run has saved, with files and bytes.");
  listing.option("DIR", path, "Folder of the checkpoints of a run").required();
  if (!app.parse(args)) return 0;
  return listing.chosen() ? list(path) : verify(path);
}

}  // namespace titanium::cli
