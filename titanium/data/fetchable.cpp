#include "titanium/data/fetchable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace titanium::data {
namespace {

constexpr std::string_view kCommand = "titanium download ";

struct Repository {
  std::string_view dataset;
  std::string_view repository;
  std::string_view files;         // pattern of those that belong to it
  bool is_readable_there = true;  // they hold the texts, or pictures and captions, themselves
};
constexpr Repository kRepositories[] = {
    {"c4", "allenai/c4", "en/c4-train.*"},
    {"c4_validation", "allenai/c4", "en/c4-validation.*"},
    {"dclm", "mlfoundations/dclm-baseline-1.0", "*.jsonl.zst"},
    {"fineweb-edu", "HuggingFaceFW/fineweb-edu", "sample/10BT/*.parquet"},
    {"dolma", "allenai/dolma", "*.json.gz", /*is_readable_there=*/false},
    {"zyda", "Zyphra/Zyda", "*.parquet"},
    {"the-stack-v2", "bigcode/the-stack-v2", "*.parquet", /*is_readable_there=*/false},
    {"finemath", "HuggingFaceTB/finemath", "finemath-4plus/*.parquet"},
    {"cc12m-wds", "pixparse/cc12m-wds", "*.tar"},
};

// Pictures that the hub has in Parquet.
constexpr std::string_view kPictures = "coco-validation";

std::string address_of(const Repository& from) {
  return fmt::format("hf://datasets/{}/{}", from.repository, from.files);
}

// What follows "fetch".
std::string by_download(const Repository& from) {
  return fmt::format(
      "it, or as many of its files as you need, with: {1}{2} --repo-type dataset --include '{3}' --local-dir data/{0}; "
      "then set dataset_path = \"data/{0}\".",
      from.dataset, kCommand, from.repository, from.files);
}

std::string fetch_pictures(const std::string& folder) {
  return fmt::format(
      "Fetch it with: {}howard-hou/COCO-Text --repo-type dataset --include '*validation-*.parquet' --local-dir "
      "data/coco; and pack its pictures and captions with: tools/pack_pictures.py data/coco {}",
      kCommand, folder);
}

OwnerOfModel& known_owners() {
  static OwnerOfModel known;
  return known;
}

std::string owner_of(const std::string& model) {
  const std::string owner = known_owners() ? known_owners()(model) : "";
  return owner.empty() ? "OWNER" : owner;
}

}  // namespace

void know_owners(OwnerOfModel owner_of) { known_owners() = std::move(owner_of); }

std::string missing_tokenizer_sentence(const std::filesystem::path& path) {
  const std::filesystem::path place = path.has_filename() ? path : path.parent_path();  // without a slash at the end
  if (place.parent_path().filename() != "hf" || place.parent_path().parent_path().filename() != "assets") {
    return fmt::format("tokenizer folder {} does not exist. Name a folder that holds tokenizer.json.", path.string());
  }
  const std::string name = place.filename().string();
  return fmt::format("tokenizer folder {} does not exist. Fetch it with: {}--repo_id {}/{} --assets tokenizer config",
                     path.string(), kCommand, owner_of(name), name);
}

std::optional<std::string> hub_address(const std::string& name) {
  const auto is_it = [&](const Repository& from) {
    return std::ranges::equal(name, from.dataset, {}, [](unsigned char c) { return std::tolower(c); });
  };
  const auto* found = std::ranges::find_if(kRepositories, is_it);
  if (found == std::end(kRepositories) || !found->is_readable_there) return std::nullopt;
  return address_of(*found);
}

std::string other_way_to_get(const std::string& address) {
  const auto* found = std::ranges::find(kRepositories, address, address_of);
  if (found == std::end(kRepositories)) return "";
  return fmt::format(" Or fetch {}", by_download(*found));
}

std::string missing_dataset_sentence(const std::string& name) {
  if (name == kPictures) {
    const std::string folder = "data/" + name;
    return fmt::format("Dataset {} is not on this machine. {}, then set dataset_path = \"{}\".", name,
                       fetch_pictures(folder), folder);
  }
  const auto* found = std::ranges::find(kRepositories, name, &Repository::dataset);
  if (found == std::end(kRepositories)) {
    return fmt::format("Dataset {} is not on this machine. Fetch its files and set dataset_path to their folder.",
                       name);
  }
  return fmt::format("Dataset {} is not on this machine. Fetch {}", name, by_download(*found));
}

std::string missing_data_sentence(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name == kPictures)
    return fmt::format("Data path {} does not exist. {}.", path.string(), fetch_pictures(path.string()));
  const auto* found = std::ranges::find(kRepositories, name, &Repository::dataset);
  if (found == std::end(kRepositories)) {
    return fmt::format("Data path {} does not exist. Check training.dataset_path.", path.string());
  }
  return fmt::format(
      "Data path {0} does not exist. Fetch it, or as many of its files as you need, with: {1}{2} --repo-type dataset "
      "--include '{3}' --local-dir {0}",
      path.string(), kCommand, found->repository, found->files);
}

std::string download_of_file(const std::filesystem::path& file) {
  const std::string name = file.parent_path().filename().string();
  return fmt::format("{}--repo_id {}/{} --additional_patterns {}", kCommand, owner_of(name), name,
                     file.filename().string());
}

bool names_download(std::string_view sentence) { return sentence.find(kCommand) != std::string_view::npos; }

}  // namespace titanium::data
