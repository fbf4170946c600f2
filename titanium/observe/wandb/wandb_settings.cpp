#include "titanium/observe/wandb/wandb_settings.h"

#include <charconv>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"

namespace titanium::observe {
namespace {

// The first variable that is set and not empty.
std::string first_of(const GetVariable& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = get(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

void check_id(const std::string& id) {
  constexpr std::string_view kRefused = "/\\#?%:";
  const bool good = id.size() <= 128 && id.find_first_of(kRefused) == std::string::npos && id.find(' ') != 0;
  if (!good) {
    throw UsageError(
        fmt::format("WANDB_RUN_ID = {} should have at most 128 characters and none of / \\ # ? % :.", printable(id)));
  }
}

std::optional<WandbBranch> read_branch(const GetVariable& get, const char* name) {
  const std::string text = first_of(get, {name});
  if (text.empty()) return std::nullopt;
  constexpr std::string_view kSeparator = "?_step=";
  const size_t at = text.find(kSeparator);
  WandbBranch branch{.run = text.substr(0, at)};
  const char* begin = at == std::string::npos ? nullptr : text.data() + at + kSeparator.size();
  const char* end = text.data() + text.size();
  const bool good = begin != nullptr && at > 0 && std::from_chars(begin, end, branch.step).ptr == end && begin != end &&
                    branch.step >= 0;
  if (!good) throw UsageError(fmt::format("{} = {} should be RUN_ID?_step=STEP.", name, printable(text)));
  return branch;
}

bool read_mode(const GetVariable& get) {
  const std::string mode = first_of(get, {"WANDB_MODE"});
  const auto known = {"", "online", "offline", "dryrun", "run", "shared", "disabled"};
  if (std::ranges::find(known, mode) == known.end()) {
    throw UsageError(fmt::format("WANDB_MODE = {} should be online, offline or disabled.", printable(mode)));
  }
  return mode != "disabled";
}

}  // namespace

WandbSettings read_wandb_settings(const GetVariable& get) {
  WandbSettings settings;
  settings.enabled = read_mode(get);
  settings.entity = first_of(get, {"WANDB_TEAM", "WANDB_ENTITY"});
  if (const std::string project = first_of(get, {"WANDB_PROJECT"}); !project.empty()) settings.project = project;
  settings.name = first_of(get, {"WANDB_RUN_NAME", "WANDB_NAME"});
  settings.id = first_of(get, {"WANDB_RUN_ID"});
  check_id(settings.id);
  settings.notes = first_of(get, {"WANDB_RUN_NOTES", "WANDB_NOTES"});
  std::istringstream tags(first_of(get, {"WANDB_RUN_TAGS", "WANDB_TAGS"}));
  for (std::string tag; std::getline(tags, tag, ',');) {
    if (!tag.empty()) settings.tags.push_back(tag);
  }
  settings.group = first_of(get, {"WANDB_RUN_GROUP"});
  settings.job_type = first_of(get, {"WANDB_RUN_JOB_TYPE", "WANDB_JOB_TYPE"});
  settings.folder = first_of(get, {"WANDB_DIR"});
  settings.resume_from = read_branch(get, "WANDB_RESUME_FROM");
  settings.fork_from = read_branch(get, "WANDB_FORK_FROM");
  if (settings.resume_from && settings.fork_from) {
    throw UsageError("WANDB_RESUME_FROM and WANDB_FORK_FROM exclude each other. Unset one of them.");
  }
  return settings;
}

}  // namespace titanium::observe
