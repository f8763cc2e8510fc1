#include "megatron/base/nearest_name.h"

#include <algorithm>
#include <cstddef>

namespace megatron {
namespace {

constexpr size_t kLettersOfAnEdit = 3, kMostEdits = 2;

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  return rows[a.size()][b.size()];
}

std::string without_leading_dashes(std::string_view name) {
  return std::string(name.substr(std::min(name.find_first_not_of('-'), name.size())));
}

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c != '-' && c != '_')
      parts.back() += c;
    else if (!parts.back().empty())
      parts.emplace_back();
  }
  if (parts.back().empty()) parts.pop_back();
  std::sort(parts.begin(), parts.end());
  return parts;
}

bool has_parts(std::string_view name, const std::vector<std::string>& parts) {
  const std::vector<std::string> own = parts_of(name);
  return parts.size() > 1 && std::includes(own.begin(), own.end(), parts.begin(), parts.end());
}

// Empty if there is none, or more than one.
template <class Condition>
std::string only_name(std::span<const std::string> names, Condition holds) {
  std::string only;
  for (const std::string& name : names) {
    if (!holds(name)) continue;
    if (!only.empty()) return {};
    only = name;
  }
  return only;
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> names) {
  const std::string letters = without_leading_dashes(word);
  if (letters.empty()) return {};
  const std::string* nearest = nullptr;
  size_t least = std::min(letters.size() / kLettersOfAnEdit, kMostEdits) + 1;
  for (const std::string& name : names)
    if (const size_t distance = edit_distance(letters, without_leading_dashes(name)); distance < least)
      least = distance, nearest = &name;
  if (nearest != nullptr) return *nearest;
  const std::string start =
      only_name(names, [&](const std::string& name) { return without_leading_dashes(name).starts_with(letters); });
  if (!start.empty()) return start;
  return only_name(names, [&, parts = parts_of(word)](const std::string& name) { return has_parts(name, parts); });
}

}  // namespace megatron
