// Measures the fastest algorithm for a shape.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

/// At its power cap a card's clock depends on the energy of an algorithm, so the winner of a short cold race may lose a
/// long one: candidates alternate, each running back to back for `seconds`. A turn begins with half as many matmuls
/// that do not count: until the card has reached the candidate's power, it is up to 5 % too fast.
struct MatmulTuningOptions {
  int num_candidates = 16;    // of the library's suggestions, best first
  double margin = 1.15;       // candidates slower than this times the fastest in a first short race are dropped
  double seconds = 0.2;       // of each turn
  int num_turns = 3;          // the median counts
  double turn_margin = 1.03;  // candidates slower than this times the fastest in the first turn have no further turn
};

/// The fastest algorithm for the matmul of `args`, whose operands are read and whose c is overwritten many times.
/// Waits for the stream. Later matmuls of this stream use it. @throw as matmul.
std::pair<MatmulKey, MatmulChoice> tune_matmul(const CudaStream& stream, const MatmulArgs& args,
                                               const MatmulTuningOptions& options = {});

/// The matmuls that this stream has run.
MatmulUse used_matmuls(const CudaStream& stream);

/// Later matmuls of this stream use the choices. @throw NotSupported if the library cannot run one of them.
void use_matmul_choices(const CudaStream& stream, const MatmulChoices& choices);

/// Version of the loaded library, as in cublasLtGetVersion.
int64_t cublaslt_version();

}  // namespace megatron::kernels
