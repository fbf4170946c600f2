// For parity/safetensors_files.py: reads weights and writes them again as one file.
//
//   safetensors_files_driver FILE_OR_FOLDER OUT.safetensors
#include <iostream>

#include "titanium/base/error.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: safetensors_files_driver FILE_OR_FOLDER OUT.safetensors\n";
    return 2;
  }
  try {
    const titanium::checkpoint::SafetensorsReader reader(argv[1]);
    std::vector<titanium::checkpoint::NamedTensor> tensors;
    for (const std::string& name : reader.names()) tensors.push_back({name, reader.tensor(name)});
    titanium::checkpoint::write_safetensors(argv[2], tensors, reader.metadata());
  } catch (const titanium::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
