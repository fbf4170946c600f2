// object_stores_driver PATH: the data files that a run finds at PATH, one line each: name, size, SHA-256 of the bytes
// as it reads them.
#include <iostream>

#include "titanium/base/error.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/digest.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    for (const auto& file : titanium::data::find_source_files(argv[1], false)) {
      const auto stream = titanium::data::open_byte_stream(file.path, file.compression);
      titanium::remote::Sha256 digest;
      std::vector<char> buffer(300'000);
      while (const size_t count = stream->read(buffer.data(), buffer.size())) digest.update({buffer.data(), count});
      std::cout << file.name << " " << file.size << " " << titanium::remote::to_hex(digest.finish()) << "\n";
    }
  } catch (const titanium::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
