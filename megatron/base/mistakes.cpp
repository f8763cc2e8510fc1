#include "megatron/base/mistakes.h"

#include <algorithm>
#include <iterator>

namespace megatron {

void Mistakes::refuse_value(std::string_view flag, std::string text) {
  refused_flags_.emplace(flag);
  texts_.push_back(std::move(text));
}

void Mistakes::add_text(std::initializer_list<std::string_view> flags, std::string text) {
  const bool known = std::any_of(flags.begin(), flags.end(), [&](auto flag) { return refused_flags_.contains(flag); });
  if (!known) texts_.push_back(std::move(text));
}

void Mistakes::attempt(std::initializer_list<std::string_view> flags, const std::function<void()>& check) {
  const size_t num_before = texts_.size();
  try {
    check();
  } catch (const Error& error) {
    add_text(flags, error.what());
    if (texts_.size() > num_before) error_ = std::current_exception();
  }
}

void Mistakes::throw_if_any(std::string_view heading) const {
  if (texts_.empty()) return;
  if (error_ && texts_.size() == 1) std::rethrow_exception(error_);
  std::string report = fmt::format("{}: {} mistake{}", heading, texts_.size(), texts_.size() == 1 ? "" : "s");
  for (size_t i = 0; i < texts_.size(); ++i) fmt::format_to(std::back_inserter(report), "\n  {}. {}", i + 1, texts_[i]);
  throw ConfigError(report);
}

}  // namespace megatron
