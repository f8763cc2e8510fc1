#include "megatron/comm/texts.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "megatron/base/word_list.h"

namespace megatron {
namespace {

template <class T>
View view_of(std::vector<T>& values) {
  const Shape shape{std::ssize(values)};
  return {values.data(), dtype_of<T>(), shape, shape.contiguous_strides()};
}

std::vector<int64_t> sizes_of_all(const ProcessGroup& group, const std::string& text, std::string_view site) {
  std::vector<int64_t> own = {std::ssize(text)}, all(static_cast<size_t>(group.size()));
  group.all_gather(view_of(own), view_of(all), {.site = site}).wait();
  return all;
}

}  // namespace

std::string broadcast_text(const ProcessGroup& group, std::string text, int root, std::string_view site) {
  std::vector<int64_t> size = {std::ssize(text)};
  group.broadcast(view_of(size), root, {.site = site}).wait();
  text.resize(static_cast<size_t>(size[0]));
  if (text.empty()) return text;
  std::vector<uint8_t> bytes(text.begin(), text.end());
  group.broadcast(view_of(bytes), root, {.site = site}).wait();
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& text, std::string_view site) {
  const std::vector<int64_t> sizes = sizes_of_all(group, text, site);
  const auto longest = static_cast<size_t>(*std::ranges::max_element(sizes));
  std::vector<uint8_t> own(text.begin(), text.end()), all(longest * sizes.size());
  own.resize(longest);
  if (longest > 0) group.all_gather(view_of(own), view_of(all), {.site = site}).wait();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<int64_t>(rank * longest);
    texts.emplace_back(begin, begin + sizes[rank]);
  }
  return texts;
}

std::vector<double> gather_numbers(const ProcessGroup& group, double number, std::string_view site) {
  std::vector<double> all(static_cast<size_t>(group.size()));
  group
      .all_gather({&number, DType::kFloat64, {1}, {1}}, {all.data(), DType::kFloat64, {std::ssize(all)}, {1}},
                  {.site = site})
      .wait();
  return all;
}

std::string describe_values(const std::vector<std::string>& values) {
  std::vector<std::string> different;
  std::map<std::string, std::vector<int>> owners;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (!owners.contains(values[rank])) different.push_back(values[rank]);
    owners[values[rank]].push_back(static_cast<int>(rank));
  }
  for (std::string& value : different) value = fmt::format("{} on {}", value, describe_ranks(owners[value]));
  return joined(different, ", ");
}

std::string describe_lines(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int>> owners;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    for (std::string line; std::getline(lines, line);) owners[line].push_back(static_cast<int>(rank));
  }
  std::vector<std::string> described;
  described.reserve(owners.size());
  for (const auto& [line, ranks] : owners)
    described.push_back(ranks.size() == texts.size() ? line : fmt::format("{} ({})", line, describe_ranks(ranks)));
  return joined(described, "\n");
}

}  // namespace megatron
