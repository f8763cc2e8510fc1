// Finds the fastest matmul algorithms for the shapes of a model on this GPU.
#pragma once

#include <string>
#include <vector>

#include "megatron/bench/bench_device.h"
#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/cuda/matmul/matmul_tuning.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

/// The matmuls of forward, dgrad and wgrad of linear layers on a GPU.
std::vector<kernels::MatmulKey> products_of(BenchDevice& bench, const std::vector<LinearShape>& shapes, DType dtype,
                                            DType gradient_dtype);

/// Measures one after the other, each under sustained load: see tune_matmul. On a GPU. A matmul is measured once, with
/// the worst alignments of its calls. @param gpu  its name
kernels::MatmulChoices tune_products(BenchDevice& bench, const std::string& gpu,
                                     const std::vector<kernels::MatmulKey>& products,
                                     const kernels::MatmulTuningOptions& options, Progress& progress);

/// "4096 x 6144 x 4096, bfloat16 to float32, a transposed, accumulating"
std::string text_of(const kernels::MatmulKey& product);

}  // namespace megatron
