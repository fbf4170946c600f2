#include "titanium/checkpoint/step_folders.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/io/temporary_file.h"

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

bool is_whole(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(
      std::initializer_list<const char*>{".metadata", "model.safetensors.index.json", "model.safetensors"},
      [&](const char* file) { return fs::is_regular_file(folder / file, ignored); });
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

fs::path step_folder(const fs::path& root, int64_t step) { return root / fmt::format("{}{}", kStep, step); }

fs::path unfinished_folder(const fs::path& root, int64_t step) { return root / fmt::format("{}{}", kUnfinished, step); }

std::vector<int64_t> saved_steps(const fs::path& root) {
  std::vector<int64_t> steps;
  for (const fs::path& path : children(root)) {
    const auto step = number_after(kStep, path.filename().string());
    if (step && is_whole(path)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

void remove_unfinished(const fs::path& root) {
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
