#include "titanium/cli/commands.h"

#include "titanium/cli/checkpoint.h"
#include "titanium/cli/config.h"
#include "titanium/cli/convert.h"
#include "titanium/cli/data.h"
#include "titanium/cli/doctor.h"
#include "titanium/cli/download.h"
#include "titanium/cli/estimate.h"
#include "titanium/cli/eval.h"
#include "titanium/cli/flight.h"
#include "titanium/cli/generate.h"
#include "titanium/cli/inspect.h"
#include "titanium/cli/launch.h"
#include "titanium/cli/report.h"
#include "titanium/cli/schedule.h"
#include "titanium/cli/tokenize.h"
#include "titanium/cli/tokenizer_train.h"
#include "titanium/cli/train.h"
#include "titanium/cli/tune.h"
#include "titanium/cli/watch.h"

namespace titanium::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "train a model", run_train},
    {"launch", "start the ranks of a job on this node", run_launch},
    {"report", "write a page with the plots of a run, or of several", run_report},
    {"watch", "show a run while it goes on, in a browser or a terminal", run_watch},
    {"doctor", "look at machines, links, storage and files before a run", run_doctor},
    {"estimate", "the memory that a run needs, without running it", run_estimate},
    {"tune", "find the fastest matrix products for a model on this GPU", run_tune},
    {"eval", "measure the loss of a checkpoint", run_eval},
    {"generate", "continue a text with a checkpoint", run_generate},
    {"convert", "write weights in another format", run_convert},
    {"inspect", "list what is in a checkpoint", run_inspect},
    {"checkpoint", "check a checkpoint for damage", run_checkpoint},
    {"config", "show, check and explain configurations", run_config},
    {"download", "fetch weights, tokenizers and data sets from the Hugging Face hub", run_download},
    {"schedule", "draw and check pipeline schedules", run_schedule},
    {"data", "inspect and prepare training data", run_data},
    {"flight", "say why the ranks of a job wait for each other", run_flight},
    {"tokenize", "turn text lines into token ids, and back", tokenize},
    {"tokenizer", "learn a tokenizer from text", tokenizer},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace titanium::cli
