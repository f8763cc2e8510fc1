// NCCL's variables that must be set before it is loaded.
#pragma once

namespace megatron {

/// NCCL registers the buffers of operations in a CUDA graph with the other ranks (NCCL_GRAPH_REGISTER, 1
/// by default), and fails if processes cannot share their memory, such as an arena's, which is mapped
/// into a reserved range of addresses. So this sets it to 0, unless the user has set it. Megatron-LM requires the same
/// if PyTorch maps memory so (expandable_segments).
void keep_nccl_from_registering_buffers();

}  // namespace megatron
