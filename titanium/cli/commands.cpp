#include "titanium/cli/commands.h"

#include <algorithm>

namespace titanium::cli {
namespace {

constexpr Command kCommands[] = {
    {"Begin", "init", "write a configuration that fits your GPUs, and say why", run_init},
    {"Begin", "download", "fetch weights, tokenizers and data sets from the Hugging Face hub", run_download},
    {"Begin", "tokenizer", "learn a tokenizer from text", run_tokenizer, "train"},
    {"Begin", "tokenize", "turn text lines into token ids, and back", run_tokenize},
    {"Begin", "data", "inspect and prepare training data", run_data, "inspect prepare prepare-images plan"},
    {"Plan", "config", "show, check and explain configurations", run_config, "show check options", true},
    {"Plan", "estimate", "the memory that a run needs, without running it", run_estimate, "", true},
    {"Plan", "schedule", "draw and check pipeline schedules", run_schedule, "show"},
    {"Plan", "doctor", "look at machines, links, storage and files before a run", run_doctor, "", true},
    {"Plan", "tune", "find the best matrix products for a model on this GPU", run_tune, "", true},
    {"Train", "train", "train a model", run_train, "", true},
    {"Train", "launch", "start the ranks of a job on this node", run_launch, "", true},
    {"Look", "watch", "show a run while it goes on, in a browser or a terminal", run_watch},
    {"Look", "report", "write a page with the plots of a run, or of several", run_report},
    {"Look", "flight", "say why the ranks of a job wait for each other", run_flight, "analyze"},
    {"Use", "generate", "continue a text with a checkpoint", run_generate, "", true},
    {"Use", "generate-image", "draw images for prompts with a checkpoint", run_generate_image, "", true},
    {"Use", "eval", "measure the loss of a checkpoint", run_eval, "", true},
    {"Use", "convert", "write weights in another format", run_convert},
    {"Use", "inspect", "list what is in a checkpoint", run_inspect},
    {"Use", "checkpoint", "list what a run has saved, and check it for damage", run_checkpoint, "list verify"},
    {"Shell", "completion", "a script that completes commands and options in bash or zsh", run_completion, "bash zsh"},
    {"Shell", "man", "the manual page of all commands", run_man},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

bool takes_run_options(std::string_view command) {
  if (command == "data plan" || command == "data prepare-images") return true;
  return std::ranges::any_of(kCommands,
                             [&](const Command& one) { return one.name == command && one.takes_run_options; });
}

}  // namespace titanium::cli
