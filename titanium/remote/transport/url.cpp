#include "titanium/remote/transport/url.h"

#include <algorithm>
#include <cctype>

#include "titanium/base/error.h"

namespace titanium::remote {

std::string Url::without_query() const { return scheme + "://" + host + path; }

bool Url::is_unprotected() const {
  const bool loopback =
      host.starts_with("127.") || host.starts_with("[::1]") || host == "localhost" || host.starts_with("localhost:");
  return scheme == "http" && !loopback;
}

std::string Url::text() const { return query.empty() ? without_query() : without_query() + "?" + query; }

Url parse_url(std::string_view text) {
  const size_t colon = text.find("://");
  TI_CHECK(colon != std::string_view::npos && colon > 0, "{} is not an address such as https://host/path.", text);
  Url url;
  for (const char c : text.substr(0, colon))
    url.scheme += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  text.remove_prefix(colon + 3);
  text = text.substr(0, text.find('#'));
  if (const size_t mark = text.find('?'); mark != std::string_view::npos) {
    url.query = text.substr(mark + 1);
    text = text.substr(0, mark);
  }
  const size_t slash = text.find('/');
  url.host = text.substr(0, slash);
  if (slash != std::string_view::npos) url.path = text.substr(slash);
  TI_CHECK(!url.host.empty(), "the address {}://{} names no host.", url.scheme, text);
  return url;
}

Url resolve_url(const Url& from, std::string_view location) {
  if (location.find("://") != std::string_view::npos) return parse_url(location);
  if (location.starts_with("//")) return parse_url(from.scheme + ":" + std::string(location));
  const std::string_view folder = std::string_view(from.path).substr(0, from.path.rfind('/') + 1);
  const std::string path =
      location.starts_with('/') ? std::string(location) : std::string(folder) + std::string(location);
  return parse_url(from.scheme + "://" + from.host + (path.starts_with('/') ? "" : "/") + path);
}

bool is_url(std::string_view path) {
  const size_t colon = path.find(":/");
  return colon != std::string_view::npos && colon >= 2 &&
         std::ranges::all_of(path.substr(0, colon), [](unsigned char c) { return std::isalnum(c); });
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size()) {
      out += static_cast<char>(std::strtol(std::string(text.substr(at + 1, 2)).c_str(), nullptr, 16));
      at += 2;
    } else {
      out += text[at] == '+' ? ' ' : text[at];
    }
  }
  return out;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/')) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

}  // namespace titanium::remote
