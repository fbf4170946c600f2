#include "titanium/cli/error_sentence.h"

#include <c10/util/Exception.h>

#include <cctype>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/base/text/thousands.h"

namespace titanium::cli {
namespace {

constexpr std::string_view kLessMemory =
    "Use fewer ranks on the node, a smaller model, batch or file, or a machine with more memory; a container or ulimit "
    "-v "
    "may set the limit.";

bool has(std::string_view text, std::string_view words) { return text.find(words) != std::string_view::npos; }

// Libraries put the place in front, "[enforce fail at alloc_cpu.cpp:121] ", and a stack at the end.
std::string_view first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (const size_t end = text.find("] "); text.starts_with('[') && end != std::string_view::npos) {
    text.remove_prefix(end + 2);
  }
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

// The number after "tried to allocate "; empty where there is none.
std::string allocation_in(std::string_view text) {
  constexpr std::string_view kWords = "tried to allocate ";
  const size_t begin = text.find(kWords);
  if (begin == std::string_view::npos) return "";
  const int64_t bytes = std::atoll(text.data() + begin + kWords.size());
  return bytes > 0 ? fmt::format(" ({} bytes were asked for at once)", with_thousands_separators(bytes)) : "";
}

std::string torch_sentence(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return fmt::format(
        "the GPU is out of memory. Use activation_checkpoint.mode = \"full\", a smaller training.local_batch_size or "
        "training.seq_len, or training.dtype = \"bfloat16\". ({})",
        first_line(text));
  }
  if (has(text, "allocate memory"))
    return fmt::format("this machine is out of memory{}. {}", allocation_in(text), kLessMemory);
  if (has(text, "SymInt") || has(text, "overflow")) {
    return fmt::format(
        "a size in the configuration or in a file is larger than any tensor can be. Check its dimensions. (libtorch: "
        "{})",
        first_line(text));
  }
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) {
    return fmt::format(
        "the processes of the job cannot exchange: {}. Check that all of them run and that the network lets them "
        "connect.",
        first_line(text));
  }
  return fmt::format("libtorch refused an operation: {}. Check the sizes and devices that the configuration asks for.",
                     first_line(text));
}

std::string file_sentence(const std::filesystem::filesystem_error& error) {
  const std::string second = error.path2().empty() ? "" : fmt::format(" and {}", error.path2().string());
  return fmt::format("{}{}: {}. Check the path, its permissions and free space.", error.path1().string(), second,
                     error.code().message());
}

std::string sentence(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) return torch_sentence(*torch);
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return file_sentence(*file);
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return fmt::format(
        "the system refused what the program needs: {}. Check the limits of processes and open files (ulimit -a).",
        system->code().message());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return fmt::format("this machine is out of memory. {}", kLessMemory);
  if (dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return fmt::format("a size in the configuration or in a file is larger than any memory. Check it. ({})",
                       first_line(error.what()));
  }
  if (dynamic_cast<const nlohmann::json::exception*>(&error) != nullptr) {
    return fmt::format("a JSON text is damaged or has another form than expected: {}. Make the file anew.",
                       first_line(error.what()));
  }
  std::string text = error.what();
  if (text.starts_with("bug in Titanium")) return text;
  return fmt::format("unexpected error, a bug in Titanium: {}. Please report it with the command.", first_line(text));
}

}  // namespace

std::string error_sentence(const std::exception& error) {
  const std::string text = sentence(error);
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += (begin == 0 ? "" : "\n") + printable(std::string_view(text).substr(begin, end - begin), text.size());
    begin = end + 1;
  }
  return lines;
}

}  // namespace titanium::cli
