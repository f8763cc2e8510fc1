// The base of all layers: their parameters, in Megatron's registration order.
#pragma once

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "megatron/autograd/parameter.h"

namespace megatron {

/// A layer. Children and parameters are members of the derived class; the base lists them. Not movable: parameters have
/// addresses.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters of this module and its children, in registration order.
  std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    append_parameters(all);
    return all;
  }

 protected:
  Parameter& register_parameter(std::unique_ptr<Parameter>& slot, const Context& ctx, ParameterOptions options) {
    slot = std::make_unique<Parameter>(ctx, std::move(options));
    entries_.emplace_back(slot.get());
    return *slot;
  }
  template <class M>
  M& register_module(std::unique_ptr<M>& slot, std::unique_ptr<M> module) {
    slot = std::move(module);
    entries_.emplace_back(static_cast<const Module*>(slot.get()));
    return *slot;
  }

 private:
  void append_parameters(std::vector<Parameter*>& all) const {
    for (const auto& entry : entries_) {
      if (const auto* parameter = std::get_if<Parameter*>(&entry))
        all.push_back(*parameter);
      else
        std::get<const Module*>(entry)->append_parameters(all);
    }
  }

  std::vector<std::variant<Parameter*, const Module*>> entries_;
};

}  // namespace megatron
