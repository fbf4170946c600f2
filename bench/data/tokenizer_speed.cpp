// bench_tokenizer_speed TOKENIZER_FOLDER TEXT_FILE IDS_FILE: encodes every document (they end with a NUL) on one core
// and prints seconds for two passes, the first with cold caches; writes the ids as 32-bit integers.
// bench/tokenizer_speed.py compares.
#include <chrono>
#include <fstream>
#include <iostream>

#include "titanium/data/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto tokenizer = titanium::data::Tokenizer::load(argv[1]);
  std::vector<std::string> documents;
  std::ifstream in(argv[2], std::ios::binary);
  for (std::string text; std::getline(in, text, '\0');) documents.push_back(text);
  std::ofstream out(argv[3], std::ios::binary);
  for (int pass = 0; pass < 2; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<titanium::data::TokenId> ids;
    for (const std::string& document : documents) {
      const auto encoded = tokenizer.encode(document, false, false);
      ids.insert(ids.end(), encoded.begin(), encoded.end());
    }
    std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << "\n";
    if (pass == 0) out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * 4));
  }
}
