#include "megatron/datasets/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/blend_index.h"

namespace megatron {
namespace {

constexpr std::string_view kNumberCharacters = ".0123456789";

std::vector<double> parse_weights(std::string_view text) {
  std::vector<double> weights;
  for (size_t at = text.find_first_of(kNumberCharacters); at != std::string_view::npos;
       at = text.find_first_of(kNumberCharacters, at)) {
    const size_t end = std::min(text.find_first_not_of(kNumberCharacters, at), text.size());
    const std::string_view number = text.substr(at, end - at);
    double weight = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
    require<ConfigError>(error == std::errc{} && stop == number.data() + number.size(),
                         "--split \"{}\": \"{}\" is not a number. Give three weights such as 969,30,1.", text, number);
    weights.push_back(weight);
    at = end;
  }
  return weights;
}

}  // namespace

SplitMatrix parse_split(std::string_view text) {
  const bool has_words = text.find("nan") != text.npos || text.find("inf") != text.npos;
  require<ConfigError>(!has_words, "--split \"{}\": nan and inf are not weights. Give weights such as 969,30,1.", text);
  std::vector<double> weights = parse_weights(text);
  require<ConfigError>(weights.size() <= 3,
                       "--split \"{}\": has {} numbers; train, validation and test need three. Exponents and signs are "
                       "not supported. Give weights such as 969,30,1.",
                       text, weights.size());
  weights.resize(3, 0.0);
  require<ConfigError>(numpy_sum(weights) > 0,
                       "--split \"{}\": no weight is above zero, so no split has data. Give weights such as 969,30,1.",
                       text);
  const std::vector<double> fractions = normalize_weights(weights);
  SplitMatrix matrix;
  double lower = 0;
  for (size_t i = 0; i < matrix.size(); ++i) {
    const double upper = lower + fractions[i];
    if (upper > lower) matrix[i] = SplitBounds{lower, upper};
    lower = upper;
  }
  return matrix;
}

IndexRange split_range(const SplitBounds& bounds, int64_t num_elements) {
  // The default rounding mode of nearbyint is half to even, as Python's round.
  const auto count = static_cast<double>(num_elements);
  return {static_cast<int64_t>(std::nearbyint(bounds.lower * count)),
          static_cast<int64_t>(std::nearbyint(bounds.upper * count))};
}

}  // namespace megatron
