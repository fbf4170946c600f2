// titanium tokenize: text lines to token ids, and back.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/cli/command_line.h"
#include "titanium/data/tokenizer.h"

namespace titanium::cli {
namespace {

struct Options {
  std::string tokenizer;
  std::string special = "token";
  bool decode = false;
  bool keep_special = false;
  bool no_bos = false;
  bool no_eos = false;
  bool json = false;
};

[[noreturn]] void refuse_line(size_t number, const char* expected) {
  throw UsageError(fmt::format("tokenize: line {} of the input is not {}.", number, expected));
}

nlohmann::json parse_line(const std::string& line, size_t number, const char* expected) {
  try {
    return parse_json(line);
  } catch (const JsonError&) {
    refuse_line(number, expected);
  }
}

std::string text_of_line(const std::string& line, size_t number) {
  constexpr const char* kExpected = "a JSON string";
  const auto json = parse_line(line, number, kExpected);
  if (!json.is_string()) refuse_line(number, kExpected);
  return json.get<std::string>();
}

// Whole numbers alone: the library would also take 1.9 and true for ids.
std::vector<data::TokenId> ids_of_line(const std::string& line, size_t number) {
  constexpr const char* kExpected = "a JSON array of ids";
  const auto json = parse_line(line, number, kExpected);
  if (!json.is_array()) refuse_line(number, kExpected);
  std::vector<data::TokenId> ids;
  for (const auto& id : json) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<data::TokenId>::max()) {
      throw UsageError(
          fmt::format("tokenize: line {} of the input has {} where an id should be: a whole number from 0.", number,
                      printable(id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))));
    }
    ids.push_back(id.get<data::TokenId>());
  }
  return ids;
}

std::string encode_line(const data::Tokenizer& tokenizer, const Options& options, const std::string& line,
                        size_t number) {
  const std::string text = options.json ? text_of_line(line, number) : line;
  return fmt::format("[{}]", fmt::join(tokenizer.encode(text, !options.no_bos, !options.no_eos), ","));
}

std::string decode_line(const data::Tokenizer& tokenizer, const Options& options, const std::string& line,
                        size_t number) {
  const std::string text = tokenizer.decode(ids_of_line(line, number), !options.keep_special);
  return options.json ? nlohmann::json(text).dump() : text;
}

// Where the size of the input is known, and the output does not go to a terminal itself.
std::unique_ptr<Progress> progress_of_input() {
  struct ::stat status = {};
  if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode) || ::isatty(STDOUT_FILENO) == 1) return nullptr;
  return std::make_unique<Progress>("tokenising", status.st_size, ProgressUnit::kBytes);
}

}  // namespace

int run_tokenize(Arguments args) {
  Options options;
  CommandLine app(
      "Reads text lines from stdin and writes one JSON array of token ids per line, or the other way round.",
      "tokenize");
  app.option("--tokenizer", options.tokenizer, "Folder with tokenizer.json or another tokenizer, or its file")
      .required();
  app.option("--special", options.special,
             "What a special token in a text becomes: token, text (ordinary text) or error")
      .one_of({"token", "text", "error"})
      .shows_default();
  app.flag("--decode", options.decode, "Read arrays of ids and write text");
  app.flag("--keep-special", options.keep_special, "With --decode: write special tokens too");
  app.flag("--no-bos", options.no_bos, "Do not put the beginning-of-text token in front");
  app.flag("--no-eos", options.no_eos, "Do not append the end-of-text token");
  app.flag("--json", options.json, "Texts are JSON strings, so that they may hold line breaks");
  if (!app.parse(args)) return 0;

  const auto tokenizer = data::Tokenizer::load(options.tokenizer, data::parse_special_in_text(options.special));
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);  // else every line read flushes the output
  size_t number = 0;
  const auto progress = progress_of_input();
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (progress) progress->add(static_cast<int64_t>(line.size()) + 1);
    std::cout << (options.decode ? decode_line : encode_line)(tokenizer, options, line, number) << '\n';
  }
  std::cout.flush();
  TI_CHECK(std::cout.good(), "tokenize: the output cannot be written.");
  return 0;
}

}  // namespace titanium::cli
