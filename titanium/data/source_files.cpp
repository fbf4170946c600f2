#include "titanium/data/source_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/fetchable.h"
#include "titanium/remote/transport/url.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadBytes = 512;
constexpr std::string_view kExpected =
    "Expected are .jsonl, .json, .ndjson, .txt or .tar files, plain or with .gz or .zst, .parquet or .arrow files, or "
    "tokens: .idx with .bin, .ds, .mds, .npy or .bin.";

bool drop_suffix(std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.resize(name.size() - suffix.size());
  return true;
}

// Format and compression from the name; nothing for names that are not data.
std::optional<SourceFile> classify(const fs::path& path, std::string name) {
  SourceFile file{.path = path, .name = name};
  if (drop_suffix(name, ".gz")) {
    file.compression = Compression::kGzip;
  } else if (drop_suffix(name, ".zst") || drop_suffix(name, ".zstd")) {
    file.compression = Compression::kZstd;
  }
  file.format = format_by_name(name);
  if (file.format == nullptr) return std::nullopt;
  if (file.compression != Compression::kNone && !file.format->may_be_compressed()) return std::nullopt;
  return file;
}

// A single file: an unknown name leaves it to the content.
SourceFile classify_by_content(const fs::path& path) {
  const std::string name = path.filename().string();
  const fs::path index = fs::path(path).replace_extension(".idx");
  if (path.extension() == ".bin" && fs::exists(index)) return *classify(index, index.filename().string());
  if (auto file = classify(path, name)) return *file;
  SourceFile file{.path = path, .name = name};
  const std::string head = read_head(path, kHeadBytes);
  file.compression = compression_by_content(head);
  if (const SourceFormat* format = format_by_content(head)) file.format = format;
  return file;
}

// What lies beside data and is none: descriptions of data sets, results of Hugging Face's map, tokens of an index.
void leave_out_companions(std::vector<SourceFile>& files) {
  std::set<std::string> names;
  bool arrow = false, mds = false;
  for (const SourceFile& file : files) {
    names.insert(file.name);
    arrow |= file.name.ends_with(".arrow");
    mds |= file.name.find(".mds") != std::string::npos;
  }
  std::erase_if(files, [&](const SourceFile& file) {
    const std::string base = file.path.filename().string();
    if (arrow && (base == "dataset_info.json" || base == "state.json" || base == "dataset_dict.json")) return true;
    if (base.starts_with("cache-") && base.ends_with(".arrow")) return true;
    if (mds && base == "index.json") return true;
    return base.ends_with(".bin") && names.contains(file.name.substr(0, file.name.size() - 4) + ".idx");
  });
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<SourceFile> files_of_folder(const fs::path& folder) {
  std::vector<SourceFile> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (hidden(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (entry->is_directory(ignored)) continue;
    auto file = classify(entry->path(), entry->path().lexically_relative(folder).generic_string());
    if (file) files.push_back(std::move(*file));
  }
  TI_CHECK(!error, "Data folder {} cannot be listed: {}. Check its permissions.", folder.string(), error.message());
  leave_out_companions(files);
  TI_CHECK(!files.empty(), "Data folder {} has no data files. {}", folder.string(), kExpected);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

// A name of which some part begins with a dot.
bool has_hidden_part(const std::string& name) {
  return std::ranges::any_of(fs::path(name), [](const fs::path& part) { return hidden(part); });
}

// Adds the bytes of the companion, which is among those that were listed or is looked for.
void add_remote_companion(SourceFile& file, const std::map<std::string, int64_t>& listed) {
  const auto companion = file.format->companion(file.path);
  if (!companion) return;
  const auto found = listed.find(companion->string());
  try {
    file.size += found != listed.end() ? found->second : remote::open_bytes(companion->string())->size();
  } catch (const UsageError& error) {
    throw Error(fmt::format("Data file {} needs {} beside it, which cannot be read: {}", file.path.string(),
                            companion->filename().string(), error.what()));
  }
}

std::map<std::string, ListedAddress>& known_listings() {
  static std::map<std::string, ListedAddress> known;
  return known;
}

std::vector<remote::RemoteFile> list_address(const std::string& address) {
  const auto known = known_listings().find(address);
  try {
    if (known == known_listings().end()) return remote::list_files(address);
    if (known->second.failure) std::rethrow_exception(known->second.failure);
    return known->second.files;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what() + other_way_to_get(address));
  }
}

std::vector<SourceFile> files_of_address(const std::string& address) {
  std::vector<SourceFile> files;
  std::map<std::string, int64_t> listed;
  for (const remote::RemoteFile& found : list_address(address)) {
    listed[found.path] = found.size;
    if (has_hidden_part(found.name)) continue;
    auto file = classify(found.path, found.name);
    const bool is_single = address.ends_with("/" + found.name);
    if (!file && is_single) file = classify_by_content(found.path);
    if (!file) continue;
    file->size = found.size;
    files.push_back(std::move(*file));
  }
  leave_out_companions(files);
  for (SourceFile& file : files) add_remote_companion(file, listed);
  TI_CHECK(!files.empty(), "Data path {} has no data files. {}", address, kExpected);
  return files;
}

void add_companion(SourceFile& file) {
  const auto companion = file.format->companion(file.path);
  if (!companion) return;
  std::error_code error;
  file.size += static_cast<int64_t>(fs::file_size(*companion, error));
  TI_CHECK(!error, "Data file {} needs {} beside it, which cannot be read: {}. Fetch or make both again.",
           file.path.string(), companion->filename().string(), error.message());
}

void check_size(const SourceFile& file, bool allow_empty) {
  if (file.size > 0) return;
  TI_CHECK(allow_empty, "Data file {} is empty. Remove it, or set training.skip_bad_records to leave such files out.",
           file.path.string());
  log_warning("Data file {} is empty", file.path.string());
}

void check_file(SourceFile& file) {
  std::error_code error;
  file.size = static_cast<int64_t>(fs::file_size(file.path, error));
  TI_CHECK(!error, "Data file {} cannot be read: {}. Check the file and its permissions.", file.path.string(),
           error.message());
  TI_CHECK(::access(file.path.c_str(), R_OK) == 0, "Data file {} cannot be read: {}. Check its permissions.",
           file.path.string(), std::strerror(errno));
  add_companion(file);
}

// The files of a path on this machine.
std::vector<SourceFile> files_of_path(const fs::path& given) {
  std::error_code error;
  fs::path path = given;
  for (const char* ending : {".idx", ".ds"}) {
    if (!fs::exists(path, error) && fs::exists(path.string() + ending, error)) path += ending;
  }
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw Error(missing_data_sentence(path));
  TI_CHECK(!error, "Data path {} cannot be read: {}. Check the path and its permissions.", path.string(),
           error.message());
  std::vector<SourceFile> files;
  if (fs::is_directory(status)) {
    files = files_of_folder(path);
  } else {
    files = {classify_by_content(path)};
  }
  for (SourceFile& file : files) check_file(file);
  return files;
}

}  // namespace

std::vector<SourceFile> find_source_files(const fs::path& path, bool allow_empty_files) {
  const bool is_address = remote::is_url(path.string());
  std::vector<SourceFile> files = is_address ? files_of_address(path.string()) : files_of_path(path);
  for (const SourceFile& file : files) check_size(file, allow_empty_files);
  std::erase_if(files, [](const SourceFile& file) { return file.size == 0; });
  return files;
}

std::string place_of(const SourceFile& file, int64_t line) {
  if (file.part.first_line > 0) return fmt::format("{}:{}", file.path.string(), line);
  return fmt::format("{} ({} {}, line {} from there)", file.path.string(), file.format->unit(), file.part.begin, line);
}

void know_listing(const std::string& address, ListedAddress listed) { known_listings()[address] = std::move(listed); }

std::string fingerprint(const std::vector<SourceFile>& files) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const SourceFile& file : files) {
    for (const char byte : fmt::format("{}:{}\n", file.name, file.size)) {
      hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace titanium::data
