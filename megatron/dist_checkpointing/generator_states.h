// States of the random-number generators of Python, NumPy and PyTorch, as those programs set them from a pickle.
//
// A generator that is seeded has a state that depends on the seed alone, so a checkpoint can hold states which a
// program that has such generators takes over, although nothing here draws from them.
#pragma once

#include <cstdint>

#include "megatron/dist_checkpointing/torch_file.h"

namespace megatron {

/// random.getstate() after random.seed(seed).
pickle::Object& python_generator_state(pickle::Graph& graph, uint32_t seed);
/// The argument of numpy.random.set_state() for the state after numpy.random.seed(seed); integers, not an array, whose
/// pickle differs between versions of NumPy.
pickle::Object& numpy_generator_state(pickle::Graph& graph, uint32_t seed);
/// torch.get_rng_state() after torch.manual_seed(seed): a uint8 tensor of 5056 elements.
pickle::Object& torch_cpu_generator_state(TorchObject& object, uint64_t seed);
/// torch.cuda.get_rng_state() of a Philox generator: a uint8 tensor of 16 elements.
/// @param offset  counts the random numbers drawn so far; a multiple of 4.
pickle::Object& torch_cuda_generator_state(TorchObject& object, uint64_t seed, uint64_t offset);

}  // namespace megatron
