// The variables of a running chat template.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "megatron/tokenizers/chat_template/value.h"

namespace megatron::chat_template {

/// Variables of a block; what it does not have its parent may have.
class Scope {
 public:
  explicit Scope(const Scope* parent) : parent_(parent) {}
  const Scope* root() const { return parent_ ? parent_->root() : this; }
  const Value* find(std::string_view name) const {
    const auto place = std::ranges::find(variables_, name, &std::pair<std::string, Value>::first);
    if (place != variables_.end()) return &place->second;
    return parent_ ? parent_->find(name) : nullptr;
  }
  void set(const std::string& name, Value value) {
    const auto place = std::ranges::find(variables_, name, &std::pair<std::string, Value>::first);
    if (place != variables_.end())
      place->second = std::move(value);
    else
      variables_.emplace_back(name, std::move(value));
  }

 private:
  const Scope* parent_;
  Dict variables_;
};

}  // namespace megatron::chat_template
