// bench_tokenizer_speed TOKENIZER TEXT_FILE IDS_FILE: loads a tokenizer, then encodes every document (they end with a
// NUL) on one core, and prints the CPU seconds of loading and of two passes, the first with cold caches; writes the ids
// as 32-bit integers. bench/tokenizer_speed.py compares.
#include <ctime>
#include <fstream>
#include <iostream>

#include "titanium/data/tokenizer.h"

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  double start = cpu_seconds();
  const auto tokenizer = titanium::data::Tokenizer::load(argv[1], titanium::data::SpecialInText::kText);
  std::cout << cpu_seconds() - start << "\n";
  std::vector<std::string> documents;
  std::ifstream in(argv[2], std::ios::binary);
  for (std::string text; std::getline(in, text, '\0');) documents.push_back(text);
  std::ofstream out(argv[3], std::ios::binary);
  for (int pass = 0; pass < 2; ++pass) {
    start = cpu_seconds();
    std::vector<titanium::data::TokenId> ids;
    for (const std::string& document : documents) {
      const auto encoded = tokenizer.encode(document, false, false);
      ids.insert(ids.end(), encoded.begin(), encoded.end());
    }
    std::cout << cpu_seconds() - start << "\n";
    if (pass == 0) out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4));
  }
}
