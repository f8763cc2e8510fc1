#include "megatron/base/flag_synonym.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "megatron/base/field.h"

namespace megatron {
namespace {

std::string plain_name(std::string_view flag) {
  std::string name;
  for (const char c : flag) {
    const bool is_leading_dash = name.empty() && c == '-';
    if (!is_leading_dash) name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

std::optional<FlagSynonym> find_synonym(std::string_view flag, std::span<const FlagSynonym> synonyms) {
  const std::string name = plain_name(flag);
  std::optional<FlagSynonym> found;
  for (const FlagSynonym& synonym : synonyms) {
    const std::vector<std::string_view> names = words_in(synonym.names);
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (!found) found.emplace(FlagSynonym{.names = name, .flags = {}});
    const std::vector<std::string_view> flags = words_in(found->flags);
    if (std::find(flags.begin(), flags.end(), synonym.flags) == flags.end())
      found->flags += (found->flags.empty() ? "" : " ") + synonym.flags;
    if (found->remark.empty()) found->remark = synonym.remark;
  }
  return found;
}

std::vector<FlagSynonym> synonyms_of(const FieldTable& table) {
  std::vector<FlagSynonym> synonyms;
  table.for_each([&](const Field& field) {
    for (const auto& [names, remark] : field.synonyms)
      synonyms.push_back(field.not_yet.empty() ? FlagSynonym{names, field.spelling(), remark}
                                               : FlagSynonym{names, {}, field.not_yet});
  });
  return synonyms;
}

std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace megatron
