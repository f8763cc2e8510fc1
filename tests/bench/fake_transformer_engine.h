// Stands for libtransformer_engine.so where there is no GPU: a few of its functions, in fp32, in the host's memory.
#pragma once

namespace megatron::testing {

/// Settings and calls of the stand-in. Its function "fake_transformer_engine" returns it.
struct FakeTransformerEngine {
  const char* refusal = nullptr;  // of tensors
  bool misreads_sizes = false;
  bool is_wrong = false;  // SwiGLU
  bool fails = false;     // the backward pass of norms
  int num_tensors = 0;    // that are not destroyed
};

}  // namespace megatron::testing
