// caption_tokenizers_driver clip|t5|test FOLDER LENGTH: each line of stdin is a JSON string, and becomes a line of ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "titanium/data/caption_tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    using titanium::data::CaptionTokenizer;
    const std::string kind = argv[1];
    const auto make = kind == "clip" ? CaptionTokenizer::clip
                      : kind == "t5" ? CaptionTokenizer::t5
                                     : CaptionTokenizer::test;
    const CaptionTokenizer tokenizer = make(argv[2], std::atoll(argv[3]));
    for (std::string line; std::getline(std::cin, line);)
      fmt::print("{}\n", fmt::join(tokenizer.encode(nlohmann::json::parse(line).get<std::string>()), " "));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
