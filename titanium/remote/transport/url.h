// Addresses with a scheme, such as https://host/path?query and s3://bucket/key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace titanium::remote {

struct Url {
  std::string scheme;  // lower case
  std::string host;    // with its port, if one is given; of s3:// the bucket
  std::string path;    // begins with '/', or is empty
  std::string query;   // without the '?'

  std::string text() const;
  std::string without_query() const;  // for messages: a query may hold a signature
  bool same_server(const Url& other) const { return scheme == other.scheme && host == other.host; }
  // Whether bytes may change on the way without notice: plain HTTP to another machine.
  bool is_unprotected() const;
};

// Throws Error when `text` has no scheme or no host.
Url parse_url(std::string_view text);

// Where `location`, the target of a redirect from `from`, leads: it may be relative.
Url resolve_url(const Url& from, std::string_view location);

// Whether a path that a user gave is an address. A scheme is two letters or more, then "://" or, because paths drop a
// second slash where they are put together, ":/".
bool is_url(std::string_view path);

// `text` with every byte but A-Z a-z 0-9 - . _ ~ as %XX; slashes stay where `keep_slashes`.
std::string percent_encode(std::string_view text, bool keep_slashes);

// The other way round, with '+' as a space.
std::string percent_decode(std::string_view text);

}  // namespace titanium::remote
