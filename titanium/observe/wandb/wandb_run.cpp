#include "titanium/observe/wandb/wandb_run.h"

#include <fmt/chrono.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;

// Field numbers of wandb_internal.Record.
constexpr int kNum = 1, kHistory = 2, kSummary = 3, kStats = 7, kRun = 17, kExit = 18, kHeader = 21, kFooter = 22,
              kEnvironment = 26;
constexpr int kKey = 1, kNestedKey = 2, kValueJson = 16;  // of the items of history, summary, config and stats
constexpr size_t kBlock = 32768, kPieceHeader = 7;
constexpr double kUsageSeconds = 10;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

ProtobufMessage timestamp(double seconds) {
  ProtobufMessage message;
  const auto whole = static_cast<int64_t>(seconds);
  message.integer(1, whole).integer(2, static_cast<int64_t>((seconds - static_cast<double>(whole)) * 1e9));
  return message;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// As wandb makes them: eight letters and digits.
std::string random_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string id;
  while (id.size() < 8) id += kLetters[random() % kLetters.size()];
  return id;
}

std::string choose_id(const WandbSettings& settings, int64_t resumed_step, const fs::path& id_file) {
  std::string id = settings.id;
  if (id.empty() && settings.resume_from) id = settings.resume_from->run;
  if (id.empty() && resumed_step > 0 && fs::exists(id_file)) {
    id = read_file(id_file, "file with the id of the W&B run");
    id.erase(std::min(id.find('\n'), id.size()));
  }
  const bool good = !id.empty() && id.size() <= 128 && id.find('/') == std::string::npos;
  if (!good) id = random_id();
  write_file_atomically(id_file, id + "\n");
  return id;
}

// JSON has no words for them; wandb takes these texts for the numbers.
std::string json_number(double value) {
  if (std::isfinite(value)) return fmt::format("{:.17g}", value);
  return std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

ProtobufMessage item(std::string_view key, std::string_view json) {
  ProtobufMessage message;
  message.text(kKey, key).text(kValueJson, json);
  return message;
}

// Keys of history and summary are lists of names, of which ours has one.
ProtobufMessage nested_item(std::string_view key, std::string_view json) {
  ProtobufMessage message;
  message.text(kNestedKey, key).text(kValueJson, json);
  return message;
}

// A folder of its own, also for a run that goes on in the second in which its last part began: wandb's names have no
// finer times, so such a run takes the next free second.
fs::path make_folder(const fs::path& parent, double started, const std::string& id) {
  std::error_code failed;
  fs::create_directories(parent, failed);
  for (auto second = static_cast<std::time_t>(started);; ++second) {
    const fs::path folder = parent / fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}", fmt::localtime(second), id);
    const bool made = !failed && fs::create_directory(folder, failed);
    TI_CHECK(!failed, "{} cannot be made: {}. Check job.dump_folder or WANDB_DIR.", folder.string(), failed.message());
    if (made) return folder;
  }
}

std::string describe_loss(int64_t bytes) { return std::string(static_cast<size_t>(bytes), '\0'); }

void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace

WandbRun::WandbRun(const fs::path& folder, const WandbSettings& settings, const std::string& config,
                   int64_t resumed_step, const fs::path& id_file)
    : id_(choose_id(settings, resumed_step, id_file)), started_(now()) {
  const fs::path parent = (settings.folder.empty() ? folder : fs::path(settings.folder)) / "wandb";
  folder_ = make_folder(parent, started_, id_);
  fs::create_directory(folder_ / "files");
  file_ = std::make_unique<GrowingFile>(folder_ / fmt::format("run-{}.wandb", id_),
                                        "Check job.dump_folder or WANDB_DIR.", describe_loss);
  write_header();
  write_run(settings, config, resumed_step);
  write_usage(false);
}

WandbRun::~WandbRun() {
  if (!finished_) write_exit(1);
}

void WandbRun::finish() {
  write_exit(0);
  finished_ = true;
}

void WandbRun::write_exit(int code) {
  write_usage(true);
  ProtobufMessage exit;
  exit.integer(1, code).integer(2, static_cast<int64_t>(now() - started_));
  append(kExit, exit);
  append(kFooter, {});
}

void WandbRun::write_header() {
  std::string start = ":W&B";
  put_little_endian(start, 0xBEE1, 2);
  put_little_endian(start, 0, 1);
  file_->append(start);
  position_ = start.size();
  ProtobufMessage version, header;
  version.text(1, "0.31.0").text(2, "0.70.0");  // whose writer this equals, and who can read it
  header.message(1, version);
  append(kHeader, header);
}

void WandbRun::write_run(const WandbSettings& settings, const std::string& config, int64_t resumed_step) {
  ProtobufMessage options;
  const nlohmann::json sections = parse_json(config);
  for (const auto& [section, value] : sections.items()) options.message(1, item(section, value.dump()));
  ProtobufMessage run;
  run.text(1, id_).text(2, settings.entity).text(3, settings.project).message(4, options);
  run.text(6, settings.group).text(7, settings.job_type).text(8, settings.name).text(9, settings.notes);
  for (const std::string& tag : settings.tags) run.text(10, tag);
  run.text(13, host_name()).integer(14, resumed_step).message(17, timestamp(started_));
  if (resumed_step > 0) run.integer(18, 1).integer(24, 1);  // it was resumed; the upload goes on at its end
  if (const auto& branch = settings.resume_from ? settings.resume_from : settings.fork_from) {
    ProtobufMessage point;
    point.text(1, branch->run).number(2, static_cast<double>(branch->step)).text(3, "_step");
    run.message(23, point);
  }
  append(kRun, run);
  ProtobufMessage environment;
  environment.text(6, "titanium").message(3, timestamp(started_)).text(12, host_name()).text(199, id_);
  environment.integer(16, std::thread::hardware_concurrency()).integer(17, std::thread::hardware_concurrency());
  append(kEnvironment, environment);
}

void WandbRun::write(int64_t step, std::span<const Scalar> scalars) {
  ProtobufMessage history, summary, number;
  const auto add = [&](std::string_view key, const std::string& json) {
    history.message(1, nested_item(key, json));
    summary.message(1, nested_item(key, json));
  };
  for (const Scalar& scalar : scalars) add(scalar.tag, json_number(scalar.value));
  add("_step", std::to_string(step));
  add("_timestamp", json_number(now()));
  add("_runtime", json_number(now() - started_));
  history.message(2, number.integer(1, step));
  append(kHistory, history);
  append(kSummary, summary);
  write_usage(false);
}

void WandbRun::write_usage(bool wait) {
  if (sampling_.valid() && (wait || sampling_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)) {
    const UsageSample sample = sampling_.get();
    ProtobufMessage stats;
    stats.message(2, timestamp(sample.at));
    for (const Scalar& value : sample.values) stats.message(3, item(value.tag, json_number(value.value)));
    append(kStats, stats);
  }
  if (wait || sampling_.valid() || now() - usage_at_ < kUsageSeconds) return;
  usage_at_ = now();
  sampling_ = std::async(std::launch::async, [this] {
    if (!usage_) usage_.emplace();
    return UsageSample{now(), usage_->sample()};
  });
}

void WandbRun::append(int field, const ProtobufMessage& content) {
  ProtobufMessage record;
  record.integer(kNum, ++records_).message(field, content);
  append_record(record.bytes());
}

void WandbRun::append_record(std::string_view record) {
  std::string out;
  const auto room = [&] { return kBlock - (position_ + out.size()) % kBlock; };
  for (bool first = true; first || !record.empty(); first = false) {
    if (room() < kPieceHeader) out.append(room(), '\0');
    const std::string_view data = record.substr(0, room() - kPieceHeader);
    record.remove_prefix(data.size());
    const bool last = record.empty();
    const auto type = static_cast<char>(first ? (last ? 1 : 2) : (last ? 4 : 3));
    const std::string checked = type + std::string(data);
    put_little_endian(out,
                      ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())), 4);
    put_little_endian(out, data.size(), 2);
    out += checked;
  }
  position_ += out.size();
  file_->append(out);
}

}  // namespace titanium::observe
