// Collects what is wrong with the values of a network.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// The nested configs of a TransformerConfig add their mistakes to one list, so that all are reported at once.
class ConfigRules {
 public:
  template <class... Args>
  void rule(bool kept, fmt::format_string<Args...> text, Args&&... args) {
    if (!kept) mistakes_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  template <class Number>
  void positive(std::string_view name, Number value) {
    rule(value > 0, "{} is {}; it must be above 0", name, value);
  }
  void share(std::string_view name, double value) {
    rule(value >= 0 && value <= 1, "{} is {}; it must be within 0 and 1", name, value);
  }
  const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  std::vector<std::string> mistakes_;
};

}  // namespace megatron
