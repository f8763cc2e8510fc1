// Everything that scripts/test.sh --full trains: every valid layout, and checkpoints between random pairs of them.
#pragma once

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

/// In an order that is random but always the same, so that a part of it speaks for all. What the cases compare with is
/// kept by them: one run on one rank of each model.
std::vector<MatrixCase> full_matrix();

}  // namespace megatron::testing
