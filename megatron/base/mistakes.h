// Collects what is wrong with a configuration, so that all of it is reported at once.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// Each mistake names the flags it is about. Once a flag's own value is refused, rules about that flag say nothing:
/// they would judge a default that nobody asked for.
class Mistakes {
 public:
  /// A flag's own value is wrong.
  void refuse_value(std::string_view flag, std::string text);
  /// A flag was probably meant by something that is reported already: rules about it say nothing.
  void doubt(std::string_view flag) { refused_flags_.emplace(flag); }
  /// The rule broken by `flags` together: what the values are, why that cannot be, how to put it right.
  template <class... Args>
  void add(std::initializer_list<std::string_view> flags, fmt::format_string<Args...> format, Args&&... args) {
    add_text(flags, fmt::format(format, std::forward<Args>(args)...));
  }

  /// Runs a check. An error of the library that it throws, such as of a file that cannot be read, is a mistake of
  /// `flags` like others; where it is the only one, throw_if_any() throws it as it is.
  void attempt(std::initializer_list<std::string_view> flags, const std::function<void()>& check);

  bool empty() const { return texts_.empty(); }
  const std::vector<std::string>& texts() const { return texts_; }
  /// @throw ConfigError that lists the mistakes under `heading`, if there are any.
  void throw_if_any(std::string_view heading) const;

 private:
  void add_text(std::initializer_list<std::string_view> flags, std::string text);

  std::vector<std::string> texts_;
  std::set<std::string, std::less<>> refused_flags_;
  std::exception_ptr error_;  // of attempt()
};

}  // namespace megatron
