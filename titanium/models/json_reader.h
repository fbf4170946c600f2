// Reads typed values out of one JSON object and names file and key in every complaint.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace titanium::models {

// A file that holds one object; `expected` says which, for the UsageError if it does not.
nlohmann::json read_json_object(const std::filesystem::path& file, std::string_view expected);

constexpr int64_t kLongestSequence = int64_t{1} << 30;

// All functions throw UsageError with a sentence for a key that is missing or has a wrong type or value. The object
// outlives the reader.
class JsonReader {
 public:
  JsonReader(std::string place, const nlohmann::json& object) : place_(std::move(place)), object_(object) {}

  bool has(std::string_view key) const;  // and is not null

  // The default limit is far beyond every model and keeps all products of sizes inside int64.
  int64_t size(std::string_view key, int64_t largest = int64_t{1} << 22) const;
  int64_t size_or(std::string_view key, int64_t fallback) const { return has(key) ? size(key) : fallback; }
  int64_t count_or(std::string_view key, int64_t fallback) const;  // from 0 on; null counts as missing
  double number(std::string_view key) const;                       // finite
  double positive(std::string_view key) const;
  double positive_or(std::string_view key, double fallback) const { return has(key) ? positive(key) : fallback; }
  bool flag(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const { return has(key) ? flag(key) : fallback; }
  std::string text_or(std::string_view key, const std::string& fallback) const;
  JsonReader object(std::string_view key) const;
  std::vector<int64_t> numbers(std::string_view key) const;    // an array of whole numbers
  std::vector<std::string> texts(std::string_view key) const;  // an array of strings

  [[noreturn]] void fail(std::string_view key, const std::string& expectation) const;

 private:
  const nlohmann::json& required(std::string_view key) const;

  std::string place_;
  const nlohmann::json& object_;
};

}  // namespace titanium::models
