// The number of GPU streams that run concurrently.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// Streams share the hardware queues of their GPU, and a stream that waits blocks all of its queue: a group's
/// operation that waits for another rank would block the kernels that this rank launches next. Every process group, and
/// every send channel, has a stream here, which soon exceed the 8 queues that CUDA opens by default.
/// So this sets CUDA_DEVICE_MAX_CONNECTIONS to 32, the maximum, if it is not set or below `num_streams`. Each
/// queue takes memory: if many processes share a GPU, the user may choose a lower value from `num_streams` on. Call it
/// before CUDA.
///
/// Megatron-LM requires 1 (tensor parallelism before Blackwell): then kernels start in the order of the calls, so that
/// a collective starts before the matmul that hides it. Here stream priorities and events
/// ensure that.
/// @return a note for the user; empty: none
std::string open_hardware_queues(int64_t num_streams);

/// @throw NotSupported for more streams than there are queues
void require_enough_hardware_queues(int64_t num_streams);

}  // namespace megatron
