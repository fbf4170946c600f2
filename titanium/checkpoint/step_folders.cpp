#include "titanium/checkpoint/step_folders.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/step_objects.h"
#include "titanium/remote/transport/url.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kUnfinished = ".unfinished-";

std::optional<int64_t> number_after(std::string_view prefix, const std::string& name) {
  int64_t number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

constexpr std::array<std::string_view, 5> kMarkers = {".metadata", "model.safetensors.index.json", "model.safetensors",
                                                      "diffusion_pytorch_model.safetensors.index.json",
                                                      "diffusion_pytorch_model.safetensors"};

fs::path unfinished_folder(const fs::path& root, int64_t step) { return root / fmt::format("{}{}", kUnfinished, step); }

bool is_address(const fs::path& root) { return remote::is_url(root.string()); }

bool is_whole(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(kMarkers,
                             [&](std::string_view file) { return fs::is_regular_file(folder / file, ignored); });
}

// The children of the folder; none when it cannot be read.
std::vector<fs::path> children(const fs::path& root) {
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(root, ignored), end; entry != end; entry.increment(ignored)) {
    paths.push_back(entry->path());
  }
  std::ranges::sort(paths);
  return paths;
}

bool remove_or_warn(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warning("Cannot remove {}: {}. Remove it by hand.", path.string(), error.message());
  return !error;
}

void remove_old_objects(const fs::path& root, int64_t step) {
  try {
    remove_step_objects(step_folder(root, step));
    log_info("Removed the old checkpoint of step {}", step);
  } catch (const Error& error) {
    log_warning("Cannot remove {}: {}", step_folder(root, step).string(), error.what());
  }
}

// Two names change places in one step where the file system can do that. Otherwise the old checkpoint goes first: for a
// moment there is none of this step, but those of other steps are there.
void exchange(const fs::path& fresh, const fs::path& place) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) return;
  const fs::path aside = fresh.string() + "-replaced";
  fs::rename(place, aside);
  fs::rename(fresh, place);
  fs::rename(aside, fresh);
}

}  // namespace

std::optional<int64_t> step_of_name(const std::string& name) { return number_after(kStep, name); }

bool is_marker(const std::string& name) { return std::ranges::find(kMarkers, name) != kMarkers.end(); }

fs::path step_folder(const fs::path& root, int64_t step) { return root / fmt::format("{}{}", kStep, step); }

std::vector<ListedStep> list_steps(const fs::path& root) {
  std::vector<ListedStep> steps;
  if (is_address(root)) {
    for (const StepObjects& step : list_step_objects(root))
      steps.push_back({step.step, step.whole, static_cast<int64_t>(step.addresses.size()), step.bytes});
    return steps;
  }
  for (const fs::path& path : children(root)) {
    const auto number = step_of_name(path.filename().string());
    if (!number) continue;
    ListedStep step{.step = *number, .whole = is_whole(path)};
    for (const fs::path& file : children(path)) {
      std::error_code error;
      const auto bytes = fs::file_size(file, error);
      if (error) continue;
      ++step.files;
      step.bytes += static_cast<int64_t>(bytes);
    }
    steps.push_back(step);
  }
  std::ranges::sort(steps, {}, &ListedStep::step);
  return steps;
}

std::vector<int64_t> saved_steps(const fs::path& root) {
  std::vector<int64_t> steps;
  for (const ListedStep& step : list_steps(root)) {
    if (step.whole) steps.push_back(step.step);
  }
  return steps;
}

fs::path writing_folder(const fs::path& root, int64_t step) {
  return is_address(root) ? step_folder(root, step) : unfinished_folder(root, step);
}

void begin_step(const fs::path& root, int64_t step) {
  const fs::path folder = writing_folder(root, step);
  if (is_address(root)) return remove_step_objects(folder);
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) fs::create_directories(folder, error);
  TI_CHECK(!error, "{} cannot be made: {}. Check permissions, free space and checkpoint.folder.", folder.string(),
           error.message());
}

void abandon_step(const fs::path& root, int64_t step) {
  if (is_address(root)) return abandon_step_objects(step_folder(root, step));
  remove_or_warn(unfinished_folder(root, step));
}

void remove_unfinished(const fs::path& root) {
  if (is_address(root)) return remove_unfinished_objects(root);
  for (const fs::path& path : children(root)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kUnfinished) && remove_or_warn(path)) {
      log_info("Removed {}, which a run has left that did not end its work on it", path.string());
    } else if (number_after(kStep, name) && !is_whole(path)) {
      log_warning("{} is not a whole checkpoint and is left alone: it has no .metadata", path.string());
    }
  }
}

void publish_step(const fs::path& root, int64_t step) {
  if (is_address(root)) return;  // its last object has made it whole
  const fs::path fresh = unfinished_folder(root, step), place = step_folder(root, step);
  try {
    sync_folder(fresh);
    if (fs::exists(place)) {
      exchange(fresh, place);
    } else {
      fs::rename(fresh, place);
    }
    sync_folder(root);
  } catch (const fs::filesystem_error& error) {
    throw Error(fmt::format("{} cannot be written: {}. Check permissions and free space.", place.string(),
                            error.code().message()));
  }
  if (fs::exists(fresh)) remove_or_warn(fresh);
}

void remove_old_steps(const fs::path& root, int64_t keep) {
  std::vector<int64_t> steps = saved_steps(root);
  const auto surplus = static_cast<int64_t>(steps.size()) - keep;
  for (int64_t i = 0; i < surplus; ++i) {
    if (is_address(root)) {
      remove_old_objects(root, steps[static_cast<size_t>(i)]);
      continue;
    }
    const fs::path aside = unfinished_folder(root, steps[static_cast<size_t>(i)]);
    std::error_code error;
    fs::rename(step_folder(root, steps[static_cast<size_t>(i)]), aside, error);
    if (error) {
      log_warning("Cannot remove {}: {}. Remove it by hand.", aside.string(), error.message());
    } else if (remove_or_warn(aside)) {
      log_info("Removed the old checkpoint of step {}", steps[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace titanium::checkpoint
