// The exception for the failure of a rank.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

/// A rank threw; the text begins with the rank. `cause` is its exception.
class RankFailure : public Error {
 public:
  RankFailure(int failed_rank, std::exception_ptr exception, const std::string& text)
      : Error(text), rank(failed_rank), cause(std::move(exception)) {}
  int rank;
  std::exception_ptr cause;
  bool is_reported = false;  // the starter of the ranks was notified while they ran
};

}  // namespace megatron
