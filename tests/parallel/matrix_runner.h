// Runs independent cases in several processes, so that one that dies or hangs takes nothing else with it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/parallel/run_record.h"

namespace megatron::testing {

/// Independent of the others; may throw.
struct MatrixCase {
  std::string group, name;  // unique together
  std::function<CaseOutcome()> run;
};

struct RunnerOptions {
  size_t jobs = 1;  // processes
  /// The limit of one case: more than the timeout of collectives, which says more than that a case hung.
  std::chrono::milliseconds case_limit = std::chrono::minutes(10);
  std::chrono::milliseconds poll = std::chrono::milliseconds(500);
};

/// Runs the cases that the record has not, in their order, and notes each as it ends. One that throws has failed; one
/// that ends its process or takes longer than the limit too, and another process goes on behind it.
/// @param tell  gets all that is recorded, once a poll.
void run_cases(const std::vector<MatrixCase>& cases, const RunRecord& record, const RunnerOptions& options,
               const std::function<void(const std::vector<RecordedCase>&)>& tell);

}  // namespace megatron::testing
