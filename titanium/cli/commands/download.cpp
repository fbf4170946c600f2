// titanium download: fetches files of a repository of the Hugging Face hub.
#include <fnmatch.h>

#include <algorithm>
#include <cctype>

#include "titanium/base/terminal/progress.h"
#include "titanium/cli/command_line.h"
#include "titanium/remote/hub/hub_download.h"

namespace titanium::cli {
namespace {

struct Options {
  std::string repo;
  std::string kind = "model";
  std::string revision = "main";
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::vector<std::string> assets;
  std::vector<std::string> additional_patterns;
  bool all = false;
  std::string local_dir;
  std::string token;
  int threads = 4;

  bool like_torchtitan() const { return all || !assets.empty() || !additional_patterns.empty(); }
};

const std::map<std::string, std::vector<std::string>> kAssets = {
    {"tokenizer",
     {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt", "vocab.json", "merges.txt",
      "special_tokens_map.json"}},
    {"safetensors", {"*.safetensors", "model.safetensors.index.json"}},
    {"index", {"model.safetensors.index.json"}},
    {"config", {"config.json", "generation_config.json"}},
};

bool matches(const std::vector<std::string>& patterns, const std::string& text) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    // As in Hugging Face's tools, a pattern that ends with a slash means all in that folder, and * passes slashes.
    return ::fnmatch((pattern.ends_with('/') ? pattern + "*" : pattern).c_str(), text.c_str(), 0) == 0;
  });
}

// torchtitan's script looks at the last part of a path alone, for patterns in lower case.
std::vector<std::string> asset_patterns(const Options& options) {
  std::vector<std::string> patterns = options.additional_patterns;
  for (const std::string& asset : options.assets) {
    const auto known = kAssets.find(asset);
    if (known == kAssets.end()) {
      throw UsageError(
          fmt::format("download: there is no asset type {}. There are tokenizer, safetensors, index and config; "
                      "--additional_patterns takes patterns, --all everything.",
                      asset));
    }
    patterns.insert(patterns.end(), known->second.begin(), known->second.end());
  }
  for (std::string& pattern : patterns) {
    std::ranges::transform(pattern, pattern.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  return patterns;
}

std::function<bool(const std::string&)> choice(const Options& options) {
  if (options.all) return [](const std::string&) { return true; };
  if (options.like_torchtitan()) {
    return [patterns = asset_patterns(options)](const std::string& path) {
      return matches(patterns, path.substr(path.rfind('/') + 1));
    };
  }
  return [options](const std::string& path) {
    return (options.include.empty() || matches(options.include, path)) && !matches(options.exclude, path);
  };
}

void add_options(CommandLine& app, Options& options) {
  app.option("repo,--repo_id,--repo-id", options.repo, "Repository: owner/name").required();
  app.option("--repo-type", options.kind, "model, dataset or space")
      .one_of({"model", "dataset", "space"})
      .shows_default();
  app.option("--revision", options.revision, "Branch, tag or commit").shows_default();
  app.option("--include", options.include, "Only files that match one of these patterns");
  app.option("--exclude", options.exclude, "No files that match one of these patterns");
  app.option(
      "--local-dir,--local_dir", options.local_dir,
      "Plain files in this folder instead of Hugging Face's cache; with --assets a folder for the model inside it");
  app.option("--token,--hf_token", options.token,
             "Token of the hub; without it HF_TOKEN, or what hf auth login has saved");
  app.option("--max-workers", options.threads, "Files at a time").between(1, 64).shows_default();
  app.option("--assets", options.assets, "As torchtitan's download_hf_assets: tokenizer, safetensors, index, config");
  app.option("--additional_patterns,--additional-patterns", options.additional_patterns,
             "As torchtitan's download_hf_assets: more patterns of file names");
  app.flag("--all", options.all, "As torchtitan's download_hf_assets: all files");
}

}  // namespace

int run_download(Arguments args) {
  Options options;
  CommandLine app("Downloads files of a repository of the Hugging Face hub, where Hugging Face's own tools find them.",
                  "download");
  add_options(app, options);
  if (!app.parse(args)) return 0;

  const bool valid =
      std::ranges::count(options.repo, '/') <= 1 && !options.repo.starts_with('/') && !options.repo.ends_with('/') &&
      options.repo.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./") ==
          std::string::npos &&
      options.repo.find("..") == std::string::npos;
  if (!valid)
    throw UsageError(
        fmt::format("download: {} is not the name of a repository, such as meta-llama/Llama-3.1-8B.", options.repo));
  remote::HubDownload download{.repo = {.kind = options.kind, .id = options.repo, .revision = options.revision},
                               .access = remote::hub_access_of_environment(),
                               .wanted = choice(options),
                               .threads = options.threads};
  if (!options.token.empty()) download.access.token = options.token;
  if (!options.local_dir.empty()) download.local_dir = options.local_dir;
  if (options.like_torchtitan()) {
    const std::filesystem::path base = options.local_dir.empty() ? "assets/hf" : options.local_dir;
    download.local_dir = base / options.repo.substr(options.repo.rfind('/') + 1);
  }
  std::optional<Progress> bar;
  const remote::HubResult result = remote::download_from_hub(download, [&](int64_t done, int64_t total) {
    if (!bar) bar.emplace("downloading", total, ProgressUnit::kBytes);
    bar->update(done);
  });
  bar.reset();
  if (result.files == 0)
    throw UsageError(fmt::format("download: {} has no file that matches the patterns.", options.repo));
  fmt::print("{}\n", result.folder.string());
  return 0;
}

}  // namespace titanium::cli
