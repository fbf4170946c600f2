// Configurations from text, for tests.
#pragma once

#include <fstream>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/config/reading/load_config.h"

namespace titanium::config {

using Args = std::vector<std::string>;

using test::test_folder;

inline std::string write_config(const std::string& toml) {
  const std::filesystem::path path = test_folder() / "run.toml";
  std::ofstream(path, std::ios::binary) << toml;
  return path.string();
}

inline LoadedConfig load(const std::string& toml, Args args = {}) {
  args.insert(args.begin(), {"--job.config_file", write_config(toml)});
  return load_config(args);
}

// The message of the UsageError, with the path of the file cut to its name.
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    std::string message = error.what();
    const std::string folder = test_folder().string() + "/";
    for (size_t at = message.find(folder); at != std::string::npos; at = message.find(folder)) {
      message.erase(at, folder.size());
    }
    return message;
  }
  return "no error";
}

inline std::string toml_error(const std::string& toml, const Args& args = {}) {
  return message_of([&] { load(toml, args); });
}

inline std::string cli_error(const Args& args) {
  return message_of([&] { load_config(args); });
}

}  // namespace titanium::config
