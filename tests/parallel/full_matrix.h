// Everything that scripts/test.sh --full trains: every valid layout, and checkpoints between random pairs of them.
#pragma once

#include <vector>

#include "tests/parallel/matrix_runner.h"

namespace megatron::testing {

/// In an order that is random but always the same, so that a part of it speaks for all. What the cases compare with is
/// kept by them: one run on one rank of each model.
std::vector<MatrixCase> full_matrix();

}  // namespace megatron::testing
