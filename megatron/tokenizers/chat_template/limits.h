// The work that running a chat template may take.
#pragma once

#include <cstdint>

#include "megatron/base/error.h"

namespace megatron::chat_template {

/// Ends templates that would run for ever, or exhaust the stack. The work of a template is the number of its steps and
/// what weight they handle; a longer conversation may cost more of it.
class Limits {
 public:
  explicit Limits(int64_t weight) : work_left_(kFreeWork + kWorkOfWeight * weight) {}
  void spend(int64_t work) {
    work_left_ -= work;
    require<DataError>(work_left_ >= 0, "the chat template takes too many steps for this conversation");
  }
  /// Exists while something is evaluated.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) {
      require<DataError>(++depth_ <= kMaxDepth, "the chat template evaluates more than {} levels within each other",
                         kMaxDepth);
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  Level descend() { return Level(depth_); }

 private:
  static constexpr int kMaxDepth = 600;  // of statements and expressions that are evaluated within each other
  static constexpr int64_t kFreeWork = 1'000'000, kWorkOfWeight = 1000;
  int64_t work_left_;
  int depth_ = 0;
};

}  // namespace megatron::chat_template
