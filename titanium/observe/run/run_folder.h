// A run as its files tell it: metrics.jsonl, metrics_by_rank/*.jsonl and run.jsonl in its job.dump_folder. Reads only,
// so a run that is going on, here or on another node, is not disturbed.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "titanium/observe/run/appended_lines.h"

namespace titanium::observe {

// Numbers of records by name; all lists are as long as `steps`, with NaN where a record has nothing.
struct Columns {
  std::vector<double> steps;  // increasing
  std::map<std::string, std::vector<double>> values;
  size_t most_numbers = size_t{1} << 26;  // in all columns together

  // Adds a record. Numbers inside objects are named "object/key", those of `experts` "experts/layer_3/dead". Records of
  // this and later steps are dropped first: a resumed run trains them again. False, and nothing is added, when its step
  // is none or there is no room.
  bool add(const nlohmann::json& record);
  void drop_after(double step);
  // Null when there is none.
  const std::vector<double>* find(const std::string& name) const;
  // The last value that is a number.
  std::optional<double> last(const std::string& name) const;

 private:
  void put(const std::string& name, const nlohmann::json& value);
};

struct RunEvent {
  double step = 0;
  double unix_s = 0;
};
struct Checkpoint : RunEvent {
  double seconds = 0;  // that writing it took
};
struct RunImage {
  std::string file;  // from the run's folder, or outside of it
  std::string caption;
};
struct RunError {
  int rank = 0;
  double unix_s = 0;
  std::string message;
};

struct RunData {
  Columns columns;
  std::map<int, Columns> ranks;                                // with metrics.save_for_all_ranks
  std::map<std::string, std::map<double, double>> validation;  // loss by set and step; "" is a set without a name
  std::map<double, std::vector<RunImage>> images;              // drawn, by step
  std::map<double, Checkpoint> checkpoints;
  std::vector<RunEvent> restarts;
  nlohmann::ordered_json start;            // the last "start" event; an empty object when there is none
  double first_start = 0;                  // unix time of the first; 0 when there is none
  std::optional<RunError> error;           // the last one
  std::string end;                         // "completed" or "stopped" when the last start has ended so
  std::map<std::string, int64_t> damaged;  // lines by file that could not be read
};

class RunFolder {
 public:
  // Throws UsageError when `path` is not a folder with one of the files.
  explicit RunFolder(const std::filesystem::path& path);

  // Reads what has been added; true when there was something.
  bool refresh();

  const RunData& data() const { return data_; }
  // The name of the folder, and that of its parent where it says little.
  std::string name() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void find_ranks();
  bool read_ranks();
  void take_event(const nlohmann::ordered_json& event);
  void take_start(const nlohmann::ordered_json& event);

  std::filesystem::path path_;
  AppendedLines metrics_, events_;
  std::map<int, AppendedLines> rank_files_;
  RunData data_;
};

}  // namespace titanium::observe
