#include "titanium/remote/stores/object_stores.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "titanium/base/text/printable.h"
#include "titanium/remote/hub/hub_cache.h"
#include "titanium/remote/stores/azure.h"
#include "titanium/remote/stores/bucket.h"
#include "titanium/remote/stores/xml.h"

namespace titanium::remote {
namespace {

[[noreturn]] void transient_or(const HttpResponse& response, const std::string& path, const std::string& sentence) {
  throw_if_transient(response, path);
  throw UsageError(sentence);
}

// The range is no part of these signatures.
HttpRequest with_range(HttpRequest request, const std::string& range) {
  if (!range.empty()) request.headers["range"] = range;
  return request;
}

class PlainObject : public RemoteObject {
 public:
  explicit PlainObject(const std::string& url) : url_(parse_url(url)) {}

  HttpRequest request(const std::string& method, const std::string& range) const override {
    return with_range({.method = method, .url = url_, .headers = {{"accept-encoding", "identity"}}}, range);
  }
  void explain(const HttpResponse& response) const override {
    const std::string path = url_.without_query();
    if (response.status == 404) throw NotFound(fmt::format("{} answers 404. Check the address.", path));
    transient_or(response, path, fmt::format("{} answers {}. Check the address.", path, response.status));
  }

 private:
  Url url_;
};

class BucketObject : public RemoteObject {
 public:
  explicit BucketObject(const std::string& url) : url_(url), bucket_(url), key_(key_of(url)) {}

  HttpRequest request(const std::string& method, const std::string& range) const override {
    return with_range(bucket_.request(method, key_), range);
  }
  void explain(const HttpResponse& response) const override { bucket_.explain(response, url_); }

 private:
  std::string url_;
  Bucket bucket_;
  std::string key_;
};

class AzureObject : public RemoteObject {
 public:
  explicit AzureObject(const std::string& url) : url_(url), container_(url), blob_(key_of(url)) {}

  HttpRequest request(const std::string& method, const std::string& range) const override {
    return container_.request(method, blob_, "", range);
  }
  void explain(const HttpResponse& response) const override { container_.explain(response, url_); }

 private:
  std::string url_;
  AzureContainer container_;
  std::string blob_;
};

class HubObject : public RemoteObject {
 public:
  explicit HubObject(const std::string& url) : access_(hub_access_of_environment()), address_(parse_hub_address(url)) {}

  HttpRequest request(const std::string& method, const std::string& range) const override {
    HttpRequest request =
        hub_file_request(access_, address_.repo, percent_encode(address_.repo.revision, false), address_.path);
    request.method = method;
    return with_range(std::move(request), range);
  }
  void explain(const HttpResponse& response) const override { explain_hub_failure(response, address_.repo); }

 private:
  HubAccess access_;
  HubAddress address_;
};

// The name of an object relative to what was asked for, which is the object or a folder above it; none: neither.
std::optional<std::string> name_below(const std::string& prefix, const std::string& key) {
  const std::string folder = prefix.empty() || prefix.ends_with('/') ? prefix : prefix + "/";
  if (key.starts_with(folder) && key.size() > folder.size() && !key.ends_with('/')) return key.substr(folder.size());
  return key == prefix ? std::optional(key.substr(key.rfind('/') + 1)) : std::nullopt;
}

// The name, if it is like a pattern in which * passes slashes, as in `titanium download --include`.
std::optional<std::string> name_like(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ? std::optional(name) : std::nullopt;
}

// "" where there is none.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

struct BucketPage {
  std::vector<RemoteFile> files;
  std::vector<std::string> folders;  // with a delimiter: what lies below
  std::string first, last;           // names of the last page that was added
  std::string next;                  // where the next page begins; empty: this is the last

  void add(BucketPage page) {
    std::ranges::move(page.files, std::back_inserter(files));
    std::ranges::move(page.folders, std::back_inserter(folders));
    first = std::move(page.first);
    last = std::move(page.last);
    next = std::move(page.next);
  }
};

// What is asked for: names that begin with `prefix` and come after `after` and not after `end`, where these are given.
struct BucketRange {
  std::string prefix;
  std::string delimiter;
  std::string after;
  std::string end;
};

// Names that are likely to share out what comes after `last`, when the page before went from `first` to it: those with
// a higher digit where the two differ, and at the three places before it.
std::vector<std::string> likely_names_after(const std::string& first, const std::string& last) {
  const auto differ = static_cast<size_t>(std::ranges::mismatch(first, last).in2 - last.begin());
  std::set<std::string> names;
  for (size_t at = differ - std::min<size_t>(differ, 3); at <= differ && at < last.size(); ++at) {
    for (const std::string_view digits : {"0123456789abcdef", "0123456789ABCDEF"}) {
      const size_t place = digits.find(last[at]);
      if (place == std::string_view::npos) continue;
      for (const char digit : digits.substr(place + 1)) names.insert(last.substr(0, at) + digit);
    }
  }
  return {names.begin(), names.end()};
}

// Lists of a bucket come in pages of 1,000, one after the other. Folders, and ranges of long lists, are listed at the
// same time.
class BucketListing {
 public:
  BucketListing(std::string url, const RetryPolicy& policy)
      : url_(std::move(url)), bucket_(url_), asked_(key_of(url_)), policy_(policy) {}

  BucketPage page(const BucketRange& range, const std::string& token) const {
    const std::string query =
        (token.empty() ? "" : "continuation-token=" + percent_encode(token, false) + "&") +
        (range.delimiter.empty() ? "" : "delimiter=" + percent_encode(range.delimiter, false) + "&") +
        "encoding-type=url&list-type=2&prefix=" + percent_encode(range.prefix, false) +
        (range.after.empty() ? "" : "&start-after=" + percent_encode(range.after, false));
    const std::string xml = with_retries(policy_, [&](Clock::time_point until) {
      HttpRequest request = bucket_.request("GET", "", query);
      request.until = until;
      HttpResponse response = http_once(request);
      if (response.status != 200) bucket_.explain(response, url_);
      if (response.body.find("</ListBucketResult>") == std::string::npos)
        throw TransientError(fmt::format("{}: the list of the bucket was cut short", url_));
      return std::move(response.body);
    });
    BucketPage page;
    const auto note = [&](const std::string& name) {
      if (page.first.empty() || name < page.first) page.first = name;
      page.last = std::max(page.last, name);
      return range.end.empty() || name <= range.end;
    };
    for (const std::string& entry : elements(xml, "Contents")) {
      const std::string key = percent_decode(first_element(entry, "Key"));
      const auto name = name_below(asked_, key);
      if (note(key) && name)
        page.files.push_back({bucket_.address(key), *name, std::atoll(first_element(entry, "Size").c_str()),
                              first_element(entry, "ETag")});
    }
    for (const std::string& entry : elements(xml, "CommonPrefixes")) {
      if (std::string folder = percent_decode(first_element(entry, "Prefix")); note(folder))
        page.folders.push_back(std::move(folder));
    }
    const bool goes_on = first_element(xml, "IsTruncated") == "true" && (range.end.empty() || page.last <= range.end);
    if (goes_on) page.next = first_element(xml, "NextContinuationToken");
    return page;
  }

  // Up to `most` pages of a range.
  BucketPage pages(const BucketRange& range, size_t most) const {
    BucketPage all = page(range, "");
    for (size_t i = 1; i < most && !all.next.empty(); ++i) all.add(page(range, all.next));
    return all;
  }

  // What lies in `folder`, and what lies in each folder there. A name may come twice.
  std::vector<RemoteFile> files_below(const std::string& folder) const {
    const BucketRange whole{.prefix = folder, .delimiter = "/", .after = "", .end = ""};
    BucketPage level = pages(whole, kPagesInARow);
    if (!level.next.empty()) {
      std::vector<BucketRange> ranges;
      std::vector<std::string> ends = likely_names_after(level.first, level.last);
      ends.emplace_back();
      for (std::string after = level.last; std::string & end : ends) {
        ranges.push_back({folder, "/", after, end});
        after = end;
      }
      add_all(ranges, level);
    }
    std::vector<BucketRange> below;
    for (const std::string& name : std::set(level.folders.begin(), level.folders.end()))
      below.push_back({name, "", "", ""});
    add_all(below, level);
    return std::move(level.files);
  }

 private:
  static constexpr size_t kListings = 16, kPagesInARow = 4;

  void add_all(const std::vector<BucketRange>& ranges, BucketPage& all) const {
    std::deque<std::future<BucketPage>> under_way;
    const auto take = [&] {
      all.add(under_way.front().get());
      under_way.pop_front();
    };
    for (const BucketRange& range : ranges) {
      if (under_way.size() == kListings) take();
      under_way.push_back(in_background([this, range] { return pages(range, SIZE_MAX); }));
    }
    while (!under_way.empty()) take();
  }

  const std::string url_;
  const Bucket bucket_;
  const std::string asked_;
  const RetryPolicy policy_;
};

}  // namespace

std::unique_ptr<RemoteObject> plain_object(const std::string& url) { return std::make_unique<PlainObject>(url); }
std::unique_ptr<RemoteObject> bucket_object(const std::string& url) { return std::make_unique<BucketObject>(url); }
std::unique_ptr<RemoteObject> azure_object(const std::string& url) { return std::make_unique<AzureObject>(url); }
std::unique_ptr<RemoteObject> hub_object(const std::string& url) { return std::make_unique<HubObject>(url); }

std::vector<RemoteFile> list_bucket(const std::string& url, const RetryPolicy& policy) {
  const BucketListing listing(url, policy);
  const std::string prefix = key_of(url);
  BucketPage page = listing.page({.prefix = prefix, .delimiter = "", .after = "", .end = ""}, "");
  std::vector<RemoteFile> files = std::move(page.files);
  if (!page.next.empty()) {
    const std::string folder = prefix.empty() || prefix.ends_with('/') ? prefix : prefix + "/";
    std::erase_if(files, [&](const RemoteFile& file) { return key_of(file.path) != prefix; });
    std::ranges::move(listing.files_below(folder), std::back_inserter(files));
  }
  std::ranges::sort(files, {}, &RemoteFile::name);
  const auto repeated = std::ranges::unique(files, {}, &RemoteFile::name);
  files.erase(repeated.begin(), repeated.end());
  return files;
}

std::vector<RemoteFile> list_azure(const std::string& url, const RetryPolicy& policy) {
  const AzureContainer container(url);
  const std::string prefix = key_of(url);
  std::vector<RemoteFile> files;
  std::string marker;
  do {
    const std::string query = (marker.empty() ? "" : "marker=" + percent_encode(marker, false) + "&") +
                              "comp=list&prefix=" + percent_encode(prefix, false) + "&restype=container";
    const std::string xml = with_retries(policy, [&](Clock::time_point until) {
      HttpRequest request = container.request("GET", "", query, "");
      request.until = until;
      HttpResponse response = http_once(request);
      if (response.status != 200) container.explain(response, url);
      if (response.body.find("</EnumerationResults>") == std::string::npos)
        throw TransientError(fmt::format("{}: the list of the container was cut short", url));
      return std::move(response.body);
    });
    for (const std::string& entry : elements(xml, "Blob")) {
      const std::string key = first_element(entry, "Name");
      if (const auto name = name_below(prefix, key))
        files.push_back({"az://" + container.name() + "/" + key, *name,
                         std::atoll(first_element(entry, "Content-Length").c_str()), first_element(entry, "Etag")});
    }
    marker = first_element(xml, "NextMarker");
  } while (!marker.empty());
  std::ranges::sort(files, {}, &RemoteFile::name);
  return files;
}

namespace {

// What the hub has in a folder of a repository, asked for once: a run looks at its data several times, and the hub
// answers only so many questions. Never changes, and never goes.
const HubListing& remembered_listing(const HubRepo& repo, const std::string& folder, const RetryPolicy& policy) {
  static auto* mutex = new std::mutex;  // neither is destroyed: threads may still list when the program ends
  static auto* listings = new std::map<std::vector<std::string>, HubListing>;
  const HubAccess access = hub_access_of_environment();
  const std::vector<std::string> key = {access.endpoint, access.token, repo.kind, repo.id, repo.revision, folder};
  const std::lock_guard lock(*mutex);
  auto found = listings->find(key);
  if (found == listings->end()) found = listings->emplace(key, list_hub_files(access, repo, policy, folder)).first;
  return found->second;
}

}  // namespace

std::vector<RemoteFile> list_hub(const std::string& url, const RetryPolicy& policy) {
  const HubAddress address = parse_hub_address(url);
  const size_t star = address.path.find('*');
  const std::string folder = star == std::string::npos ? "" : folder_of(address.path.substr(0, star));
  const HubListing& listing = remembered_listing(address.repo, folder, policy);
  const std::string kind = address.repo.kind == "model" ? "" : address.repo.kind + "s/";
  std::vector<RemoteFile> files;
  for (const HubFile& file : listing.files) {
    // A pattern's files keep their whole names, which they have in a folder that they are downloaded into as well.
    const auto name =
        star == std::string::npos ? name_below(address.path, file.path) : name_like(address.path, file.path);
    if (!name) continue;
    // The commit, not the branch: what is read is what was listed.
    files.push_back({fmt::format("hf://{}{}@{}/{}", kind, address.repo.id, listing.commit, file.path), *name, file.size,
                     file.etag});
  }
  TI_CHECK(!files.empty() || !hub_is_offline(), "{}",
           offline_refusal(hub_access_of_environment(), address.repo, address.path));
  return files;
}

namespace {

// Of a revision that begins with refs/convert/ or refs/pr/, as huggingface_hub reads it: it has one more part.
size_t length_of_special_revision(const std::string& text) {
  for (const std::string_view special : {"refs/convert/", "refs/pr/"}) {
    if (text.starts_with(special)) return special.size();
  }
  return 0;
}

}  // namespace

HubAddress parse_hub_address(const std::string& url) {
  const Url parsed = parse_url(url);
  std::string rest = parsed.host + parsed.path;
  HubAddress address;
  for (const std::string kind : {"dataset", "space", "model"}) {
    if (rest.starts_with(kind + "s/")) {
      address.repo.kind = kind;
      rest.erase(0, kind.size() + 2);
    }
  }
  while (rest.ends_with('/')) rest.pop_back();
  const size_t slash = rest.find('/');
  const size_t behind_name = slash == std::string::npos ? slash : rest.find_first_of("/@", slash + 1);
  address.repo.id = rest.substr(0, behind_name);
  if (behind_name != std::string::npos) rest.erase(0, behind_name);
  if (behind_name != std::string::npos && rest[0] == '@') {
    const size_t end = rest.find('/', length_of_special_revision(rest.substr(1)) + 1);
    address.repo.revision = percent_decode(rest.substr(1, end == std::string::npos ? end : end - 1));
    rest.erase(0, end);
  }
  if (behind_name != std::string::npos && rest.size() > 1) address.path = rest.substr(1);
  if (slash == std::string_view::npos || address.repo.id.empty() || address.repo.revision.empty()) {
    throw UsageError(
        fmt::format("{} is not an address of the hub such as hf://meta-llama/Llama-3.1-8B or "
                    "hf://datasets/allenai/c4/en.",
                    printable(url)));
  }
  return address;
}

}  // namespace titanium::remote
