#include "megatron/base/flag_help.h"

#include <algorithm>
#include <cctype>

#include "megatron/base/word_list.h"

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
  std::string word = !field.choices.empty()             ? fmt::format("{{{}}}", joined(field.choices, ","))
                     : field.kind == WordKind::kInteger ? "N"
                     : field.kind == WordKind::kNumber  ? "X"
                                                        : "TEXT";
  if (field.is_list && field.max_words)
    for (size_t i = 1; i < *field.max_words; ++i) word += " " + word.substr(0, word.find(' '));
  else if (field.is_list)
    word += " ...";
  return " " + word;
}

// Empty for switches and for what is not set.
std::string default_of(const Field& field) {
  const std::string value = python_text(field.get());
  const bool is_set = field.kind != WordKind::kSwitch && value != "None" && value != "[]";
  return is_set ? value : field.default_text;
}

std::string meaning_of(const Field& field) {
  std::string meaning = field.help;
  if (!field.unit.empty()) meaning += fmt::format(", in {}", field.unit);
  if (!field.not_yet.empty()) {
    const std::string value = default_of(field);
    meaning += value.empty() ? "; not supported yet" : fmt::format("; {} only, so far", value);
    meaning += fmt::format(": {}", field.not_yet);
  }
  if (!field.no_effect.empty()) meaning += fmt::format("{}no effect: {}", meaning.empty() ? "" : "; ", field.no_effect);
  return meaning;
}

std::string entry_of(const Field& field) {
  const std::string value = default_of(field);
  const std::string meaning = meaning_of(field) + (value.empty() ? "" : fmt::format(" (default: {})", value));
  return help_entry(fmt::format("{}{}", joined(field.spellings(), ", "), operand_of(field)), meaning);
}

std::string default_of_switch(const Field& field) {
  const FieldValue value = field.get();
  const bool* is_on = std::get_if<bool>(&value);
  return is_on == nullptr ? field.default_text : *is_on ? "on" : "off";
}

// "at least 1, at most 4096"; empty where any value is right.
std::string range_of(const Field& field) {
  std::vector<std::string> bounds;
  if (field.least) bounds.push_back(fmt::format("{} {}", field.least_excluded ? "above" : "at least", *field.least));
  if (field.most) bounds.push_back(fmt::format("{} {}", field.most_excluded ? "below" : "at most", *field.most));
  return joined(bounds, ", ");
}

std::string lower(std::string_view text) {
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

// A bar would end the cell of a table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

}  // namespace

std::string help_entry(std::string_view heading, std::string_view text) {
  return wrapped(heading, 2) + wrapped(text, 6);
}

bool mentions(std::string_view text, std::string_view word) {
  return lower(text).find(lower(word)) != std::string::npos;
}

std::string help_of(const FieldTable& table) {
  std::string out;
  for (const FieldGroup& group : table.groups()) {
    out += group.title + "\n" + (group.text.empty() ? "" : wrapped(group.text, 2) + "\n");
    for (const Field& field : group.fields)
      if (field.given_by_flag()) out += entry_of(field);
    out += "\n";
  }
  return out;
}

std::string help_of(const Field& field) {
  std::string out = joined(field.spellings(), ", ") + operand_of(field) + "\n" + wrapped(meaning_of(field), 2);
  const auto line = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) out += wrapped(fmt::format("{}: {}", name, text), 2);
  };
  line("default", field.kind == WordKind::kSwitch ? default_of_switch(field) : default_of(field));
  line("range", range_of(field));
  for (const FieldLimit& limit : field.limits) line("cannot run yet", limit.text);
  if (field.need) line("has an effect only with", field.need->text);
  line("example", field.example);
  line("choices", joined(field.choices, ", "));
  line("choices of Megatron that are not supported yet", joined(field.later_choices, ", "));
  return out;
}

std::string help_about(const FieldTable& table, std::string_view word) {
  std::string out;
  for (const FieldGroup& group : table.groups()) {
    std::string entries;
    for (const Field& field : group.fields) {
      if (!field.given_by_flag()) continue;
      const std::string entry = entry_of(field);
      std::string text = entry;
      std::replace(text.begin(), text.end(), '\n', ' ');
      while (text.find("  ") != std::string::npos) text.erase(text.find("  "), 1);  // of lines that are wrapped
      if (mentions(text, word)) entries += entry;
    }
    if (!entries.empty()) out += group.title + "\n" + entries + "\n";
  }
  return out;
}

std::string markdown_of(const FieldTable& table) {
  std::string out;
  for (const FieldGroup& group : table.groups()) {
    out += fmt::format("## {}\n\n{}\n\n| flag | default | meaning |\n|---|---|---|\n", group.title, group.text);
    for (const Field& field : group.fields) {
      if (!field.given_by_flag()) continue;
      const std::string flags = fmt::format("`{}`", joined(field.spellings(), "`, `"));
      out += fmt::format("| {}{} | {} | {} |\n", flags, cell(operand_of(field)), cell(default_of(field)),
                         cell(meaning_of(field)));
    }
    out += "\n";
  }
  return out;
}

}  // namespace megatron
