// Looks at XML text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron::testing {

/// How often `part` stands in `text`.
inline int count(std::string_view text, std::string_view part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// Why `text` is not well-formed XML as far as tags, attributes and entities go; "" if it is.
inline std::string xml_mistake(std::string_view text) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const std::string_view entity = text.substr(i, text.find(';', i) - i + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") return "bare &";
    }
    if (text[i] != '<') continue;
    const std::size_t end = text.find('>', i);
    if (end == std::string_view::npos) return "tag without end";
    const std::string_view tag = text.substr(i + 1, end - i - 1);
    if (tag.find('<') != std::string_view::npos) return "< within a tag";
    if (count(tag, "\"") % 2 != 0) return "odd quotes in " + std::string(tag);
    const std::string name(tag.substr(tag[0] == '/', tag.find_first_of(" /", 1) - (tag[0] == '/')));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return "unexpected end of " + name;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty() ? "" : "no end of " + open.back();
}

}  // namespace megatron::testing
