#include "megatron/base/field.h"

#include <algorithm>

namespace megatron {
namespace {

std::string dashed(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

std::vector<std::string> Field::spellings() const {
  std::vector<std::string> all = flags;
  all.insert(all.end(), aliases.begin(), aliases.end());
  all.insert(all.end(), off_flags.begin(), off_flags.end());
  return all;
}

Field& FieldTable::append_plain(std::string_view name, std::string_view help, WordKind kind, bool is_list) {
  require(!groups_.empty(), "field {} comes before the first group", name);
  Field& field = groups_.back().fields.emplace_back();
  field.name = name;
  field.flags = {"--" + dashed(name)};
  field.help = help;
  field.kind = kind;
  field.is_list = is_list;
  field.of_whole_runs = groups_.back().of_whole_runs;
  return field;
}

Field& FieldTable::add_on(std::string_view name, bool& value, std::string_view help) {
  return add(name, value, help).turned_off_by({"--no-" + dashed(name), "--disable-" + dashed(name)});
}

Field* FieldTable::find(std::string_view name) {
  for (FieldGroup& group : groups_)
    for (Field& field : group.fields)
      if (field.name == name) return &field;
  return nullptr;
}

const Field* FieldTable::find_flag(std::string_view flag) const {
  for (const FieldGroup& group : groups_)
    for (const Field& field : group.fields)
      for (const auto* spellings : {&field.flags, &field.off_flags, &field.aliases})
        if (std::find(spellings->begin(), spellings->end(), flag) != spellings->end()) return &field;
  return nullptr;
}

}  // namespace megatron
