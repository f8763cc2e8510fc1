// Values that must live until an operation has ended.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace megatron {

/// Owns values of any types, only to destroy them. Move-only.
/// Example: `KeepAlive::of(input.storage(), output.storage())`.
class KeepAlive {
 public:
  KeepAlive() = default;
  template <class... Owners>
  static KeepAlive of(Owners&&... owners) {
    KeepAlive result;
    result.held_ = std::make_unique<Held<std::decay_t<Owners>...>>(std::forward<Owners>(owners)...);
    return result;
  }
  bool empty() const { return held_ == nullptr; }
  void release() { held_.reset(); }

 private:
  struct Anything {
    virtual ~Anything() = default;
  };
  template <class... Owners>
  struct Held : Anything {
    template <class... Values>
    explicit Held(Values&&... values) : owners(std::forward<Values>(values)...) {}
    std::tuple<Owners...> owners;
  };
  std::unique_ptr<Anything> held_;
};

}  // namespace megatron
