#include "titanium/data/tokenizer/training/word_counts.h"

#include <condition_variable>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = 1 << 20;
constexpr size_t kQueuedBatches = 8;

struct Batch {
  const fs::path* file;
  int64_t first_line;
  std::vector<std::string> lines;
};

using Counts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

class Counter : public WordSink {
 public:
  void word(std::string_view word) override {
    const auto found = counts.find(word);
    if (found != counts.end()) {
      ++found->second;
    } else {
      counts.emplace(word, 1);
    }
  }

  Counts counts;
};

std::string text_of(const Batch& batch, size_t index) {
  const std::string& line = batch.lines[index];
  if (batch.file->extension() != ".jsonl") return line;
  const auto record = Json::parse(line, nullptr, false);
  const Json& text = field_or_null(record, "text");
  if (!text.is_string()) {
    throw UsageError(fmt::format("{}:{}: the line is not a JSON object with a string field \"text\".",
                                 batch.file->string(), batch.first_line + static_cast<int64_t>(index)));
  }
  return text.get<std::string>();
}

// Threads that take batches from a bounded queue. A failure in one of them ends all and is thrown by finish() or add().
class Workers {
 public:
  Workers(const PreTokenizer& pre_tokenizer, int threads)
      : pre_tokenizer_(pre_tokenizer), counters_(static_cast<size_t>(threads)) {
    try {
      for (Counter& counter : counters_) threads_.emplace_back([this, &counter] { work(counter); });
    } catch (...) {  // the system has no thread left
      close();
      throw;
    }
  }
  ~Workers() { close(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(Batch batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() < kQueuedBatches || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    queue_.push_back(std::move(batch));
    changed_.notify_all();
  }

  Counts finish() {
    close();
    if (failure_) std::rethrow_exception(failure_);
    Counts total = std::move(counters_[0].counts);
    for (size_t i = 1; i < counters_.size(); ++i) {
      for (const auto& [word, count] : counters_[i].counts) total[word] += count;
    }
    return total;
  }

 private:
  void work(Counter& counter) {
    try {
      for (Batch batch; take(batch);) {
        for (size_t i = 0; i < batch.lines.size(); ++i) {
          const std::string text = text_of(batch, i);
          pre_tokenizer_.split(replace_invalid_utf8(text).value_or(text), counter);
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  bool take(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty() || closed_ || failure_; });
    if (queue_.empty() || failure_) return false;
    batch = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return true;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  const PreTokenizer& pre_tokenizer_;
  std::vector<Counter> counters_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> queue_;
  std::exception_ptr failure_;
  bool closed_ = false;
};

}  // namespace

std::vector<CountedWord> count_words(const std::vector<fs::path>& inputs, const PreTokenizer& pre_tokenizer,
                                     int threads, const std::function<void(int64_t)>& progress) {
  Workers workers(pre_tokenizer, threads);
  int64_t bytes_read = 0;
  for (const fs::path& file : inputs) {
    std::ifstream in(file, std::ios::binary);
    if (!in.good() || fs::is_directory(file)) {
      throw UsageError(fmt::format("input file {} cannot be read. Check the path.", file.string()));
    }
    const bool records = file.extension() == ".jsonl";
    Batch batch{.file = &file, .first_line = 1, .lines = {}};
    size_t batch_bytes = 0;
    int64_t line_number = 0;
    for (std::string line; std::getline(in, line);) {
      ++line_number;
      if (!records && !in.eof()) line += '\n';
      batch_bytes += line.size();
      batch.lines.push_back(std::move(line));
      if (batch_bytes < kBatchBytes) continue;
      workers.add(std::exchange(batch, {.file = &file, .first_line = line_number + 1, .lines = {}}));
      progress(bytes_read += static_cast<int64_t>(std::exchange(batch_bytes, 0)));
    }
    workers.add(std::move(batch));
    progress(bytes_read += static_cast<int64_t>(batch_bytes));
  }
  std::vector<CountedWord> words;
  for (auto& [word, count] : workers.finish()) words.push_back({word, count});
  std::ranges::sort(words, {}, &CountedWord::bytes);
  return words;
}

}  // namespace titanium::data
