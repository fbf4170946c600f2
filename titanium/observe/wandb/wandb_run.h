// An offline run of Weights & Biases, as its own library writes it: `wandb sync` uploads it, also while it grows.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "titanium/base/files/growing_file.h"
#include "titanium/observe/protobuf.h"
#include "titanium/observe/scalar_writer.h"
#include "titanium/observe/system_usage.h"
#include "titanium/observe/wandb/wandb_settings.h"

namespace titanium::observe {

// Note [W&B's file]
// run-<id>.wandb begins with ":W&B", 0xBEE1 and version 0, seven bytes in all. Then follow records in LevelDB's log
// format: blocks of 32 KiB, in which each piece of a record has the CRC-32 of its type and data (zlib's, unlike
// LevelDB), the length in two bytes and a type (whole, first, middle, last); a rest of less than seven bytes in a block
// is zero. A record is the protobuf message wandb_internal.Record.
class WandbRun : public ScalarWriter {
 public:
  // Makes `folder`/wandb/offline-run-<time>-<id>/, or the same below WANDB_DIR, and writes the beginning of the run.
  // `config` is a JSON object. A run that goes on after `resumed_step` > 0 keeps its id: that of the file `id_file`,
  // which is made otherwise. Throws Error when a file cannot be written.
  WandbRun(const std::filesystem::path& folder, const WandbSettings& settings, const std::string& config,
           int64_t resumed_step, const std::filesystem::path& id_file);
  // Without finish() the run has ended with an error.
  ~WandbRun() override;

  // Also the use of the machine, about every 10 seconds; it is asked for by a thread of its own, because drivers take
  // their time.
  void write(int64_t step, std::span<const Scalar> scalars) override;
  // The run has ended well.
  void finish();

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& id() const { return id_; }

 private:
  void write_header();
  void write_run(const WandbSettings& settings, const std::string& config, int64_t resumed_step);
  // Writes the use of the machine that was asked for, if the answer is there or `wait`, and asks again when it is time.
  void write_usage(bool wait);
  void write_exit(int code);
  void append(int field, const ProtobufMessage& content);
  void append_record(std::string_view record);

  std::string id_;
  std::filesystem::path folder_;
  std::unique_ptr<GrowingFile> file_;
  size_t position_ = 0;  // in the file
  int64_t records_ = 0;
  double started_ = 0;
  double usage_at_ = 0;
  bool finished_ = false;
  struct UsageSample {
    double at = 0;
    std::vector<Scalar> values;
  };
  std::optional<SystemUsage> usage_;  // used by the thread that samples
  std::future<UsageSample> sampling_;
};

}  // namespace titanium::observe
