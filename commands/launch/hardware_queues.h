// How many streams of a GPU run side by side.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// Streams share the hardware queues of their GPU, and one whose turn has not come holds up all of its queue: a group's
/// operation that waits for another rank would hold up the kernels that this rank sends next. Every group of ranks, and
/// every pair that sends messages, has a stream here, which are soon more than the 8 queues that CUDA opens by itself.
/// So this sets CUDA_DEVICE_MAX_CONNECTIONS to 32, the most there are, where it is not set or below `num_streams`. Each
/// queue takes memory: where many processes share a GPU, a value from `num_streams` on is the user's choice. Call it
/// before CUDA.
///
/// Megatron-LM asks for 1 (tensor parallelism before Blackwell): then kernels begin in the order of the calls, by which
/// it has a collective begin before the product that hides it. Here that is the business of stream priorities and
/// events.
/// @return what the user is to know of it; empty: nothing
std::string open_hardware_queues(int64_t num_streams);

/// @throw NotSupported for more streams than there are queues
void require_enough_hardware_queues(int64_t num_streams);

}  // namespace megatron
