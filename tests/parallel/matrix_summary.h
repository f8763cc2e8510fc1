// The results of a long run, as Markdown.
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/matrix_runner.h"

namespace megatron::testing {

struct MatrixSummary {
  /// A table by group, the case with the largest errors of each group, and each case that has failed.
  std::string markdown;
  bool has_passed = false;  // every case was run, and passed
};

/// @param finished  may hold other cases, which do not count.
MatrixSummary summarize(const std::vector<MatrixCase>& cases, const std::vector<RecordedCase>& finished);

}  // namespace megatron::testing
