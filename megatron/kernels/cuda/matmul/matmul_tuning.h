// Measuring which algorithm multiplies a shape fastest.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

/// A card at its power cap clocks by the energy that an algorithm takes, so the winner of a short cold race may lose a
/// long one: each candidate runs back to back for `seconds`, by turns. A turn begins with half as many products that do
/// not count: until the card has come to the power that the candidate takes, it is up to 5 % too fast.
struct MatmulTuningOptions {
  int num_candidates = 16;    // of the library's guesses, best first
  double margin = 1.15;       // those slower than this times the fastest in a first short race take no further part
  double seconds = 0.2;       // of each turn
  int num_turns = 3;          // the median counts
  double turn_margin = 1.03;  // those slower than this times the fastest in the first turn have no other
};

/// The fastest algorithm for the product of `args`, whose operands are read and whose c is overwritten many times.
/// Waits for the stream. Later products of this stream use it. @throw as matmul.
std::pair<MatmulKey, MatmulChoice> tune_matmul(const CudaStream& stream, const MatmulArgs& args,
                                               const MatmulTuningOptions& options = {});

/// Which products this stream has run.
MatmulUse used_matmuls(const CudaStream& stream);

/// Later products of this stream use the choices. @throw NotSupported if the library cannot run one of them.
void use_matmul_choices(const CudaStream& stream, const MatmulChoices& choices);

/// Of the library that is loaded, as cublasLtGetVersion counts.
int64_t cublaslt_version();

}  // namespace megatron::kernels
