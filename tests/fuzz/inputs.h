// Inputs for the readers of files: each has the form of its format, and one property that goes too far: depth, sharing,
// sizes or repetition. Some are damaged afterwards.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace titanium::fuzz {

// Where a generator's decisions come from. The same seed makes the same input.
class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  bool one_in(uint64_t times) { return below(times) == 0; }
  // Mostly a few, seldom thousands.
  size_t some(size_t most = 4096);
  // Numbers at the edges of their types, and sizes whose products overflow.
  int64_t number();
  std::string text(size_t most = 64);
  template <typename T>
  const T& pick(const std::vector<T>& items) {
    return items[below(items.size())];
  }

 private:
  std::mt19937_64 random_;
};

// Some formats are several files that belong together.
struct File {
  std::string name;
  std::string content;
};
using Input = std::vector<File>;

std::string repeated(const std::string& text, size_t times);
template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
// Any value of JSON, and a text as one.
std::string make_json_value(Choices& choices, int depth);
std::string quoted(const std::string& text);

std::string make_pickle(Choices& choices);
std::string make_json(Choices& choices);
std::string make_toml(Choices& choices);
std::string make_safetensors(Choices& choices);
std::string make_csv(Choices& choices);

// data_inputs.cpp
Input make_lines(Choices& choices);        // JSON lines
Input make_token_files(Choices& choices);  // of Megatron, datatrove, llm.c and numpy
Input make_shard(Choices& choices);        // of MDS
Input make_archive(Choices& choices);      // of tar
Input make_vocabulary(Choices& choices);   // of SentencePiece, Mistral and tiktoken

// run_inputs.cpp
Input make_flights(Choices& choices);  // dumps of flight recorders
Input make_run(Choices& choices);      // metrics.jsonl and run.jsonl

// Flips, removes, repeats or inserts bytes.
std::string damage(std::string input, Choices& choices);

}  // namespace titanium::fuzz
