#include "titanium/ops/linear/gemm_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"

namespace titanium::ops {
namespace {

constexpr std::string_view kHeader = "# titanium tune: product, algorithm";

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::filesystem::path cache_folder() {
  if (const char* folder = environment("TITANIUM_CACHE_DIR")) return folder;
  if (const char* folder = environment("XDG_CACHE_HOME")) return std::filesystem::path(folder) / "titanium";
  if (const char* home = environment("HOME")) return std::filesystem::path(home) / ".cache" / "titanium";
  return {};
}

bool is_hexadecimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::filesystem::path gemm_choices_file(const std::string& gpu, const std::string& library_version) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  std::string name = "gemm_" + gpu + "_" + library_version + ".txt";
  std::ranges::replace_if(name, [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '_'; }, '_');
  return folder / name;
}

GemmChoices read_gemm_choices(const std::filesystem::path& file) {
  GemmChoices choices;
  if (file.empty() || !std::filesystem::exists(file)) return choices;
  std::istringstream lines(read_file(file, "choices of algorithms"));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    TI_CHECK(
        space != std::string::npos && space > 0 && is_hexadecimal(std::string_view(line).substr(space + 1)),
        "{}:{}: \"{}\" is not a product and an algorithm. Delete the file, and run titanium tune to make it again.",
        file.string(), number, line.substr(0, 60));
    choices[line.substr(0, space)] = line.substr(space + 1);
  }
  return choices;
}

void write_gemm_choices(const std::filesystem::path& file, const GemmChoices& choices) {
  GemmChoices all = choices;
  all.merge(read_gemm_choices(file));
  std::string text(kHeader);
  for (const auto& [product, algorithm] : all) text += fmt::format("\n{} {}", product, algorithm);
  write_file_atomically(file, text + "\n");
}

}  // namespace titanium::ops
