#include "megatron/base/flag_help.h"

#include <algorithm>
#include <iterator>

namespace megatron {
namespace {

constexpr size_t kWidth = 100;

std::string wrapped(std::string_view text, size_t indent) {
  std::string out;
  std::string line(indent, ' ');
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() > indent && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

std::string operand_of(const Field& field) {
  if (field.kind == WordKind::kSwitch) return {};
  std::string word = !field.choices.empty()             ? fmt::format("{{{}}}", fmt::join(field.choices, ","))
                     : field.kind == WordKind::kInteger ? "N"
                     : field.kind == WordKind::kNumber  ? "X"
                                                        : "TEXT";
  if (field.is_list) word += " ...";
  return " " + word;
}

std::string note_of(const Field& field) {
  std::string note = field.help;
  if (!field.unit.empty()) note += fmt::format(", in {}", field.unit);
  if (field.kind != WordKind::kSwitch) {
    const std::string value = python_text(field.get());
    const bool unset = value == "None" || value == "[]" || value.empty();
    if (!unset) note += fmt::format(" (default: {})", value);
  }
  if (!field.no_effect.empty()) note += fmt::format("{}no effect: {}", note.empty() ? "" : "; ", field.no_effect);
  return note;
}

}  // namespace

std::string help_of(const FieldTable& table) {
  std::string out;
  for (const FieldGroup& group : table.groups()) {
    out += group.title + "\n" + wrapped(group.text, 2) + "\n";
    for (const Field& field : group.fields) {
      if (!field.given_by_flag()) continue;
      std::vector<std::string> spellings = field.flags;
      std::copy(field.off_flags.begin(), field.off_flags.end(), std::back_inserter(spellings));
      out +=
          wrapped(fmt::format("{}{}", fmt::join(spellings, ", "), operand_of(field)), 2) + wrapped(note_of(field), 6);
    }
    out += "\n";
  }
  return out;
}

}  // namespace megatron
