#include "megatron/datasets/data_paths.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

std::string_view strip(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Python's float(): white space around, an optional sign, single underscores between digits, inf and nan.
std::optional<double> parse_python_float(std::string_view item) {
  std::string_view text = strip(item);
  bool negative = false;
  if (text.starts_with('+') || text.starts_with('-')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;  // from_chars would read a second sign
  }
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (digits.find('(') != std::string::npos) return std::nullopt;  // from_chars reads "nan(...)", Python does not
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (stop != digits.data() + digits.size() || digits.empty() || error == std::errc::invalid_argument)
    return std::nullopt;
  if (error == std::errc::result_out_of_range) value = HUGE_VAL;
  return negative ? -value : value;
}

Blend unweighted(std::span<const std::string> items) {
  Blend blend;
  for (const std::string& item : items) blend.prefixes.emplace_back(strip(item));
  return blend;
}

constexpr uintmax_t kMostListBytes = 64 << 20;

/// Checks the kind of the file before it is opened: opening a FIFO waits for its other end.
std::string read_text(const std::string& path) {
  std::error_code refusal;
  const std::filesystem::file_status status = std::filesystem::status(path, refusal);
  require<DataError>(std::filesystem::exists(status), "{}: cannot be opened for reading: {}. Give the path of a file.",
                     path, refusal ? refusal.message() : "no such file");
  require<DataError>(std::filesystem::is_regular_file(status),
                     "{}: is not a regular file. Write the list of data paths into a file and give its path.", path);
  const uintmax_t size = std::filesystem::file_size(path, refusal);
  require<DataError>(
      !refusal && size <= kMostListBytes,
      "{}: has {} bytes, and a list of data paths has at most {}. Give the file of the list, not of data.", path, size,
      kMostListBytes);
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(size));
  require<DataError>(file.is_open() && static_cast<uintmax_t>(file.gcount()) == size,
                     "{}: cannot be read. Give the path of a file that this user may read.", path);
  return text;
}

std::vector<std::string> split_at_white_space(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

/// The parts of one item of weights and prefixes, "0.3 a 0.7 b"; nothing for other items, as a path may have spaces.
std::vector<std::string> quoted_pairs(std::span<const std::string> items) {
  if (items.size() != 1) return {};
  std::vector<std::string> words = split_at_white_space(items[0]);
  if (words.size() % 2 != 0) return {};
  for (size_t i = 0; i < words.size(); i += 2)
    if (!parse_python_float(words[i])) return {};
  return words;
}

}  // namespace

Blend parse_blend(std::span<const std::string> items) {
  if (const std::vector<std::string> words = quoted_pairs(items); !words.empty()) return parse_blend(words);
  require<ConfigError>(!items.empty(),
                       "the list of data paths is empty. Give PREFIX... or WEIGHT PREFIX WEIGHT PREFIX ...");
  if (items.size() % 2 != 0) return unweighted(items);

  Blend blend;
  std::vector<double> weights;
  bool weights_have_ended = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    const std::optional<double> weight = parse_python_float(items[i]);
    // Megatron too finds a contradiction only in a weight after a pair without one; weights that stop make all items
    // paths.
    require<ConfigError>(
        !(weight.has_value() && weights_have_ended),
        "the list of data paths gives {} a weight, but not the pair before it. Give each path a weight, or none.",
        items[i + 1]);
    if (!weight.has_value()) {
      weights_have_ended = true;
      continue;
    }
    require<ConfigError>(std::isfinite(*weight), "the weight \"{}\" of {} is not a finite number", items[i],
                         items[i + 1]);
    weights.push_back(*weight);
    blend.prefixes.emplace_back(strip(items[i + 1]));
  }
  if (weights_have_ended) return unweighted(items);
  blend.weights = std::move(weights);
  return blend;
}

std::vector<std::string> read_data_args_file(const std::string& path) { return split_at_white_space(read_text(path)); }

PerSplit<std::optional<Blend>> read_per_split_data_args_file(const std::string& path) {
  constexpr const char* kShape =
      "It must be a JSON object with the keys \"train\", \"valid\" and \"test\", each a list of strings, a string or "
      "null.";
  const nlohmann::json root = nlohmann::json::parse(read_text(path), nullptr, false);
  require<DataError>(root.is_object(), "{}: is not a JSON object. {}", path, kShape);
  PerSplit<std::optional<Blend>> blends;
  for (Split split : kSplits) {
    const std::string key(name_of(split));
    require<DataError>(root.contains(key), "{}: the key \"{}\" is missing. {}", path, key, kShape);
    const nlohmann::json& value = root[key];
    if (value.is_null()) continue;
    std::vector<std::string> items;
    if (value.is_string()) {
      items = split_at_white_space(value.get<std::string>());
    } else {
      require<DataError>(value.is_array(), "{}: the value of \"{}\" is a {}. {}", path, key, value.type_name(), kShape);
      for (const nlohmann::json& item : value) {
        require<DataError>(item.is_string(), "{}: \"{}\" lists {}, which is not a string. {}", path, key, item.dump(),
                           kShape);
        items.push_back(item.get<std::string>());
      }
    }
    blends[index_of(split)] = parse_blend(items);
  }
  return blends;
}

}  // namespace megatron
