// Reads an input as the program would. Throws Error for what is refused with a sentence; any other exception is a
// finding.
#pragma once

#include "tests/fuzz/inputs.h"

namespace titanium::fuzz {

void read_one_pickle(const Input& files);
void read_one_json(const Input& files);
void read_one_toml(const Input& files);
void read_one_safetensors(const Input& files);
void read_one_csv(const Input& files);
void read_one_data_file(const Input& files);
void read_one_vocabulary(const Input& files);
void read_one_flight(const Input& files);
void read_one_run(const Input& files);

}  // namespace titanium::fuzz
