// The files of a Hugging Face folder that are not weights.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace titanium::models {

// A model's own config.json, completed with what only the assets know: the ids of the special tokens, out of their
// config.json or their tokenizer, and the number of positions, if their config.json says more of the same kind of
// model. Throws Error when a file of the assets is not what its name says.
std::string complete_config_json(const std::string& config, const std::filesystem::path& assets);

// The files of the tokenizer and the options of generation that are there.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& assets);

// Copies these. Throws Error when one cannot be copied.
void copy_tokenizer_files(const std::filesystem::path& assets, const std::filesystem::path& folder);

}  // namespace titanium::models
