// Which tokens go to which rank of an expert-parallel group. Rank r of n has the experts r * e / n ... of e, and a
// section of s rows for the tokens of every other rank.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Section r has the tokens that go to an expert of rank r, each once and in token order; rows past the last belong to
/// no token. A rank with more than s tokens gets the first s of them and raises StepState::overflow.
struct TokenSectionsArgs {
  ConstView map;     // [t, e] uint8, contiguous
  View tokens;       // [n * s] int32: the token of each row; -1: none
  View slots;        // [t, n] int32: the row of each token in each section; -1: none
  View section_map;  // [n * s, e / n] uint8: the columns of the section's rank
  StepState* state = nullptr;
};
void token_sections(const CpuStream& stream, const TokenSectionsArgs& args);
void token_sections(const CudaStream& stream, const TokenSectionsArgs& args);

}  // namespace megatron::kernels
