// How a family of decoders is built from the options of a job.
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "titanium/models/decoder/args.h"
#include "titanium/models/model.h"

namespace titanium::models::decoder {

// The decoder `Built` of a flavor, or of what `read` finds in the folder model.hf_assets_path where the flavor is auto.
template <typename Built, typename Args>
std::unique_ptr<Model> build(const config::Model& options, std::optional<int64_t> max_seq_len,
                             const std::map<std::string, Args>& flavors,
                             Args (*read)(const std::filesystem::path& folder)) {
  Args args = options.flavor == "auto" ? read(options.hf_assets_path) : flavors.at(options.flavor);
  apply_options(args, options, max_seq_len);
  return std::make_unique<Built>(args);
}

// The same for families whose folders have their sizes in config.json.
template <typename Built, typename Args, Args (*kRead)(const std::filesystem::path& file)>
std::unique_ptr<Model> build_from_config_json(const config::Model& options, std::optional<int64_t> max_seq_len,
                                              const std::map<std::string, Args>& flavors) {
  return build<Built, Args>(options, max_seq_len, flavors,
                            [](const std::filesystem::path& folder) { return kRead(folder / "config.json"); });
}

}  // namespace titanium::models::decoder
