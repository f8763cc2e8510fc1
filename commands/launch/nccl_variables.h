// NCCL's variables that must be set before it is loaded.
#pragma once

namespace megatron {

/// NCCL registers the buffers of operations that it finds in a CUDA graph with the other ranks (NCCL_GRAPH_REGISTER, 1
/// by default), and fails where their memory cannot be shared between processes: an arena's cannot, which is mapped
/// into a reserved range of addresses. So this sets it to 0, unless the user has set it. Megatron-LM asks for the same
/// where PyTorch maps memory so (expandable_segments).
void keep_nccl_from_registering_buffers();

}  // namespace megatron
