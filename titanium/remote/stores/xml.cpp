#include "titanium/remote/stores/xml.h"

#include <utility>

namespace titanium::remote {
namespace {

constexpr std::pair<std::string_view, char> kEscapes[] = {
    {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};

std::string resolve(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t before = out.size();
    for (const auto& [escape, character] : kEscapes) {
      if (!text.substr(at).starts_with(escape)) continue;
      out += character;
      at += escape.size();
      break;
    }
    if (out.size() == before) out += text[at++];
  }
  return out;
}

}  // namespace

std::vector<std::string> elements(std::string_view xml, const std::string& tag) {
  std::vector<std::string> found;
  const std::string open = "<" + tag + ">", close = "</" + tag + ">";
  for (size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at)) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == std::string_view::npos) break;
    const std::string_view text = xml.substr(at, end - at);
    const bool has_children = text.find('<') != std::string_view::npos;
    found.push_back(has_children ? std::string(text) : resolve(text));
    at = end;
  }
  return found;
}

std::string first_element(std::string_view xml, const std::string& tag) {
  const auto found = elements(xml, tag);
  return found.empty() ? "" : found.front();
}

}  // namespace titanium::remote
