// read_flight_dumps
#include <charconv>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/train/flight/analysis.h"

namespace titanium::train {
namespace {

using checkpoint::PickleValue;

// "rank_12" -> 12; -1 for other names.
int rank_in(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return -1;
  int rank = -1;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), rank);
  return error == std::errc() && end == name.data() + name.size() && rank >= 0 ? rank : -1;
}

// "[0, 1, 4]".
std::vector<int> read_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (size_t at = text.find_first_of("0123456789"); at < text.size();) {
    int rank = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), rank);
    if (error != std::errc()) break;
    ranks.push_back(rank);
    at = text.find_first_of("0123456789", static_cast<size_t>(end - text.data()));
  }
  std::ranges::sort(ranks);
  return ranks;
}

// "nccl:_all_gather_base" -> "all_gather".
std::string plain_name(const std::string& profiling_name) {
  std::string name = profiling_name.substr(profiling_name.find(':') + 1);
  name = name.substr(0, name.find(' '));
  if (name == "all_reduce_barrier") return "barrier";
  if (name == "recv") return "receive";
  if (name.starts_with('_')) name.erase(0, 1);
  if (name.ends_with("_base")) name.erase(name.size() - 5);
  return name;
}

std::string first_item(const PickleValue& list) {
  const auto items = list.items();
  if (items.empty()) return "";
  return items[0].kind() == PickleValue::Kind::kString ? items[0].as_string() : items[0].repr();
}

void describe(const PickleValue& entry, FlightEntry& into) {
  const std::string name = plain_name(entry.at("profiling_name").as_string());
  const std::string in = first_item(entry.at("input_sizes")), out = first_item(entry.at("output_sizes"));
  const std::string dtype = first_item(entry.at("input_dtypes"));
  into.operation = dtype.empty() ? name : fmt::format("{} of {} {}", name, in, dtype);
  if (name == "send" || name == "receive") {
    into.must_match = fmt::format("{} {}", name == "send" ? in : out, dtype);
  } else {
    into.must_match =
        name == "all_to_all" ? fmt::format("{} {}", name, dtype) : fmt::format("{} {} {} {}", name, in, out, dtype);
  }
}

// The two ranks of "send 0->1" or "recv 1<-0", as places in the group: from, to.
std::pair<size_t, size_t> direction(const std::string& profiling_name, size_t members, const std::string& what) {
  size_t first = 0, second = 0;
  const size_t at = profiling_name.find(' ');
  const bool sends = profiling_name.find("->") != std::string::npos;
  const std::string text = at == std::string::npos ? "" : profiling_name.substr(at);
  TI_CHECK(std::sscanf(text.c_str(), sends ? " %zu->%zu" : " %zu<-%zu", &first, &second) == 2 && first < members &&
               second < members,
           "{}: \"{}\" names no two of {} ranks. Take the dumps anew.", what, profiling_name, members);
  return sends ? std::pair(first, second) : std::pair(second, first);
}

class Reader {
 public:
  Reader(const PickleValue& dump, std::string what) : what_(std::move(what)) {
    const auto config = dump.at("pg_config").items();
    for (size_t i = 0; i + 1 < config.size(); i += 2) {
      const std::string& name = config[i].as_string();
      groups_[name] = std::make_shared<const std::vector<int>>(read_ranks(config[i + 1].at("ranks").as_string()));
    }
    const auto entries = dump.at("entries").items();
    if (!entries.empty()) flight_.whole = entries[0].at("record_id").as_int() == 0;
    for (const PickleValue& entry : entries) add(entry);
  }
  RankFlight take() { return std::move(flight_); }

 private:
  void add(const PickleValue& entry) {
    const std::string& name = entry.at("profiling_name").as_string();
    if (name.ends_with("coalesced")) return;  // its parts have entries of their own
    const auto group = entry.at("process_group").items();
    TI_CHECK(group.size() == 2, "{}: an entry has no process group. Take the dumps anew.", what_);
    FlightEntry read{.group = group[0].as_string(), .axis = group[1].as_string()};
    const auto members = groups_.find(read.group);
    TI_CHECK(members != groups_.end() && !members->second->empty(),
             "{}: the process group \"{}\" is not described. Take the dumps anew.", what_, read.group);
    read.members = members->second;
    read.number = entry.at("collective_seq_id").as_int();
    read.state = entry.at("state").as_string();
    read.created_ns = entry.at("time_created_ns").as_int();
    const PickleValue* step = entry.find("step");
    if (step != nullptr) read.step = step->as_int();
    // NCCL's collectives wait on the device, where those that are queued after another have not started.
    read.waited_for = read.state == "started" || (step == nullptr && read.state != "completed");
    describe(entry, read);
    if (entry.at("is_p2p").as_bool() && read.group.find("->") == std::string::npos) split_by_direction(name, read);
    flight_.entries.push_back(std::move(read));
  }

  // PyTorch counts all messages of a rank together.
  void split_by_direction(const std::string& name, FlightEntry& entry) {
    const std::vector<int>& all = *entry.members;
    const auto [from, to] = direction(name, all.size(), what_);
    entry.group = fmt::format("{} {}->{}", entry.group, all[from], all[to]);
    entry.members = std::make_shared<const std::vector<int>>(
        std::vector<int>{std::min(all[from], all[to]), std::max(all[from], all[to])});
    entry.number = ++messages_[entry.group];
  }

  std::string what_;
  RankFlight flight_;
  std::map<std::string, std::shared_ptr<const std::vector<int>>> groups_;  // members by name
  std::map<std::string, int64_t> messages_;
};

}  // namespace

Flights read_flight_dumps(const std::filesystem::path& folder, const std::string& prefix) {
  Flights flights;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    const int rank = rank_in(file.path().filename().string(), prefix);
    if (rank < 0 || !file.is_regular_file()) continue;
    const std::string what = file.path().string();
    const std::string bytes = read_file(file.path(), "flight recorder dump");
    try {
      flights[rank] = Reader(checkpoint::read_pickle(std::as_bytes(std::span(bytes)), what), what).take();
    } catch (const Error& problem) {
      const std::string text = problem.what();
      throw Error(text.starts_with(what) ? text : fmt::format("{} is no dump of a flight recorder: {}", what, text));
    }
  }
  if (!flights.empty()) return flights;
  throw UsageError(fmt::format(
      "{} has no dumps of a flight recorder ({}0, {}1, ...). Give the folder comm.save_traces_folder inside the "
      "job.dump_folder of a run that failed or got SIGUSR2, and --prefix if its files are called otherwise.",
      folder.string(), prefix, prefix));
}

}  // namespace titanium::train
