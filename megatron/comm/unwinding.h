// Detects whether a destructor runs because of an exception.
#pragma once

#include <exception>

namespace megatron {

/// A member of this type shows its owner's destructor whether an exception newer than the owner ends it.
class Unwinding {
 public:
  bool is_under_way() const { return std::uncaught_exceptions() > num_exceptions_; }

 private:
  int num_exceptions_ = std::uncaught_exceptions();
};

}  // namespace megatron
