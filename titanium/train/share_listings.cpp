#include "titanium/train/share_listings.h"

#include <numeric>
#include <set>

#include "titanium/base/collect_errors.h"
#include "titanium/base/error.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/hub/hub.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/transport/url.h"
#include "titanium/train/task/text_data.h"

namespace titanium::train {
namespace {

// Of texts or of pictures. What is wrong with a name is told where the data is looked for.
std::set<std::string> addresses_of(const JobConfig& config) {
  std::vector<std::string> ignored;
  std::set<std::string> addresses;
  const auto add = [&](const DataPlace& place, data::DatasetKind kind) {
    const std::string path = data::locate_dataset(place.dataset, place.path, kind).path.string();
    if (remote::is_url(path)) addresses.insert(path);
  };
  collect_errors(ignored, [&] {
    for (const DataPlace& place : data_places(config)) {
      collect_errors(ignored, [&] { add(place, data::DatasetKind::kTexts); });
      collect_errors(ignored, [&] { add(place, data::DatasetKind::kImages); });
    }
  });
  return addresses;
}

// What listing has come to, as text for the other ranks: a letter that says which, and a sentence, or fields that end
// with a zero byte, which no name can have.
constexpr char kFiles = 'f', kUsageError = 'u', kError = 'e';

std::string list(const std::string& address) {
  try {
    std::string text(1, kFiles);
    for (const remote::RemoteFile& file : remote::list_files(address)) {
      for (const std::string& field : {file.path, file.name, std::to_string(file.size), file.version})
        text.append(field).push_back('\0');
    }
    return text;
  } catch (const UsageError& error) {
    return kUsageError + std::string(error.what());
  } catch (const std::exception& error) {
    return kError + std::string(error.what());
  }
}

data::ListedAddress parse(std::string_view text) {
  const char outcome = text[0];
  text.remove_prefix(1);
  if (outcome == kUsageError) return {.files = {}, .failure = std::make_exception_ptr(UsageError(std::string(text)))};
  if (outcome == kError) return {.files = {}, .failure = std::make_exception_ptr(Error(std::string(text)))};
  data::ListedAddress listed;
  const auto field = [&] {
    const size_t end = text.find('\0');
    std::string value(text.substr(0, end));
    text.remove_prefix(end + 1);
    return value;
  };
  while (!text.empty()) {
    remote::RemoteFile file{.path = field(), .name = field()};
    file.size = std::stoll(field());
    file.version = field();
    listed.files.push_back(std::move(file));
  }
  return listed;
}

// Offline, files of the hub are what a cache has, and that of this machine may have others than that of rank 0.
data::ListedAddress checked_here(data::ListedAddress listed) {
  if (!remote::hub_is_offline()) return listed;
  for (const remote::RemoteFile& file : listed.files) {
    if (!file.path.starts_with("hf://") || remote::exists(file.path)) continue;
    return {.files = {},
            .failure = std::make_exception_ptr(
                Error(fmt::format("HF_HUB_OFFLINE is set, and the hub's cache of this machine does not have {}, which "
                                  "that of rank 0 has. Fetch "
                                  "it with `titanium download`, or let all machines have one cache (HF_HOME).",
                                  file.path)))};
  }
  return listed;
}

}  // namespace

void share_listings(comm::World& world, const JobConfig& config) {
  const std::set<std::string> addresses = addresses_of(config);
  if (addresses.empty() || world.size() == 1 || config.comm.mode == "fake_backend") return;
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const comm::GroupPtr group = world.host_group("data", all);
  const remote::OneWait wait;  // the other ranks wait for all of them
  for (const std::string& address : addresses) {
    const std::string listed = comm::broadcast_text(*group, world.rank() == 0 ? list(address) : "");
    data::know_listing(address, checked_here(parse(listed)));
  }
  group->barrier();  // nobody closes it while another rank still connects
}

}  // namespace titanium::train
