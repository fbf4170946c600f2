#include "titanium/checkpoint/step_objects.h"

#include <algorithm>
#include <map>

#include "titanium/base/log.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/object_writer.h"

namespace titanium::checkpoint {
namespace {

std::string name_in_step(const std::string& address) { return address.substr(address.rfind('/') + 1); }

constexpr const char* kUnfinished = ".unfinished";

bool is_ours(const std::string& address) {
  const std::string name = name_in_step(address);
  return name == kSidecarFile || (name.starts_with("__") && name.ends_with(".distcp"));
}

}  // namespace

std::vector<StepObjects> list_step_objects(const std::filesystem::path& root) {
  std::map<int64_t, StepObjects> steps;
  for (const remote::RemoteFile& file : remote::list_files(root.string() + "/")) {
    const size_t slash = file.name.find('/');
    const auto number = slash == std::string::npos ? std::nullopt : step_of_name(file.name.substr(0, slash));
    if (!number) continue;
    StepObjects& step = steps[*number];
    step.step = *number;
    step.whole |= is_marker(file.name.substr(slash + 1));
    step.bytes += file.size;
    step.addresses.push_back(file.path);
  }
  std::vector<StepObjects> found;
  for (auto& [number, step] : steps) found.push_back(std::move(step));
  return found;
}

void remove_step_objects(const std::filesystem::path& folder) {
  std::vector<std::string> markers, others, last;
  for (const remote::RemoteFile& file : remote::list_files(folder.string() + "/"))
    (is_marker(file.name) ? markers : says_unfinished(file.name) ? last : others).push_back(file.path);
  if (!markers.empty() && last.empty()) {
    mark_unfinished(folder);
    last.push_back((folder / kUnfinished).string());
  }
  for (const auto& objects : {markers, others, last}) remote::remove_objects(objects);
}

void abandon_step_objects(const std::filesystem::path& folder) {
  try {
    remove_step_objects(folder);
  } catch (const Error& error) {
    log_warning("Cannot remove what is there of {}, which is not whole: {}", folder.string(), error.what());
  }
}

bool says_unfinished(const std::string& name) { return name == kUnfinished; }

void mark_unfinished(const std::filesystem::path& folder) {
  remote::ObjectWriter object((folder / kUnfinished).string());
  object.write(std::as_bytes(std::span(std::string_view("Titanium is writing here.\n"))));
  object.publish();
}

void unmark_unfinished(const std::filesystem::path& folder) {
  const std::string mark = (folder / kUnfinished).string();
  try {
    remote::remove_objects({mark});
  } catch (const Error& error) {
    log_warning("{} cannot be removed, though what is beside it is whole: {}", mark, error.what());
  }
}

void remove_unfinished_objects(const std::filesystem::path& root) {
  for (const StepObjects& step : list_step_objects(root)) {
    const std::filesystem::path folder = step_folder(root, step.step);
    const bool marked = std::ranges::any_of(step.addresses, says_unfinished, name_in_step);
    if (step.whole) {
      if (marked) unmark_unfinished(folder);  // the run was killed after everything else
      continue;
    }
    if (!marked && !std::ranges::all_of(step.addresses, is_ours)) {
      log_warning("{} is not a whole checkpoint and is left alone: it has no .metadata", folder.string());
      continue;
    }
    remove_step_objects(folder);
    log_info("Removed {}, which a run has left that did not end its work on it", folder.string());
  }
  if (const size_t uploads = remote::abort_uploads(root.string() + "/step-"); uploads > 0)
    log_info("Ended {} uploads to {} that a run has left", uploads, root.string());
}

}  // namespace titanium::checkpoint
