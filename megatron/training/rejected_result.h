// A step whose result cannot be right, and that must not change the model.
#pragma once

#include "megatron/base/error.h"

namespace megatron {

/// Ends the run. The trainer is as it was before the step.
class RejectedResult : public Error {
 public:
  enum class Verdict {
    kStop,                ///< nothing more is to be found out: --rerun-mode disabled
    kRestartToTellApart,  ///< the same again here: right, or a fault that another host would not have
    kFailed,              ///< told apart: a transient or lasting fault of the hardware, or a right result
  };
  RejectedResult(const std::string& text, Verdict its_verdict) : Error(text), verdict(its_verdict) {}

  Verdict verdict;
};

}  // namespace megatron
