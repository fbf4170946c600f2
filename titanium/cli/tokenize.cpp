#include "titanium/cli/tokenize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/json.h"
#include "titanium/base/printable.h"
#include "titanium/cli/arguments.h"
#include "titanium/data/tokenizer.h"

namespace titanium::cli {
namespace {

struct Options {
  std::string tokenizer;
  bool decode = false;
  bool keep_special = false;
  bool no_bos = false;
  bool no_eos = false;
  bool json = false;
};

// One line of stdin as `T`, written in JSON.
template <typename T>
T parse_line(const std::string& line, size_t number, const char* expected) {
  try {
    return parse_json(line).get<T>();
  } catch (const JsonError&) {
  } catch (const nlohmann::json::exception&) {
  }
  throw UsageError(fmt::format("tokenize: line {} of the input is not {}.", number, expected));
}

std::string encode_line(const data::Tokenizer& tokenizer, const Options& options, const std::string& line,
                        size_t number) {
  const std::string& text = options.json ? parse_line<std::string>(line, number, "a JSON string") : line;
  return fmt::format("[{}]", fmt::join(tokenizer.encode(text, !options.no_bos, !options.no_eos), ","));
}

std::string decode_line(const data::Tokenizer& tokenizer, const Options& options, const std::string& line,
                        size_t number) {
  std::vector<data::TokenId> ids;
  for (const auto& id : parse_line<std::vector<nlohmann::json>>(line, number, "a JSON array of ids")) {
    if (!id.is_number_unsigned() || id > std::numeric_limits<data::TokenId>::max()) {
      throw UsageError(
          fmt::format("tokenize: line {} of the input has {} where an id should be: a whole number from 0.", number,
                      printable(id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))));
    }
    ids.push_back(id);
  }
  const std::string text = tokenizer.decode(ids, !options.keep_special);
  return options.json ? nlohmann::json(text).dump() : text;
}

}  // namespace

int tokenize(Arguments args) {
  Options options;
  CLI::App app("Reads text lines from stdin and writes one JSON array of token ids per line, or the other way round.",
               "tokenize");
  app.add_option("--tokenizer", options.tokenizer, "Folder with tokenizer.json")->required();
  app.add_flag("--decode", options.decode, "Read arrays of ids and write text");
  app.add_flag("--keep-special", options.keep_special, "With --decode: write special tokens too");
  app.add_flag("--no-bos", options.no_bos, "Do not put the beginning-of-text token in front");
  app.add_flag("--no-eos", options.no_eos, "Do not append the end-of-text token");
  app.add_flag("--json", options.json, "Texts are JSON strings, so that they may hold line breaks");
  if (!parse_arguments(app, args)) return 0;

  const auto tokenizer = data::Tokenizer::load(options.tokenizer);
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);  // else every line read flushes the output
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    std::cout << (options.decode ? decode_line : encode_line)(tokenizer, options, line, number) << '\n';
  }
  std::cout.flush();
  TI_CHECK(std::cout.good(), "tokenize: the output cannot be written.");
  return 0;
}

}  // namespace titanium::cli
