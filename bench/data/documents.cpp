// bench_documents PATH...: reads all documents of each file or folder on one thread, without tokenising, and prints
// seconds of processor time, bytes of text or tokens, and documents. bench/data_documents.py compares.
#include <fmt/format.h>

#include <ctime>

#include "titanium/data/document.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::clock_t begin = std::clock();
    titanium::data::RecordSource source(argv[i], {});
    int64_t documents = 0;
    size_t bytes = 0;
    std::string storage;
    for (; const auto record = source.read(documents); ++documents) {
      bytes += titanium::data::has_tokens(*record) ? titanium::data::document_tokens(*record).size() * 4
                                                   : titanium::data::document_text(*record, "text", storage).size();
    }
    fmt::print("{} {} {}\n", static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, bytes, documents);
  }
}
