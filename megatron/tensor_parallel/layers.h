// Linear layers cut over the tensor-parallel ranks, or repeated on them. Megatron Core: core/tensor_parallel/layers.py.
#pragma once

#include <memory>
#include <string>

#include "megatron/autograd/module.h"
#include "megatron/tensor_parallel/linear.h"

namespace megatron {

/// The facts that all of them need.
struct ParallelLinearOptions {
  std::string name;        // path of the layer; parameters are name.weight and name.bias
  StoredName stored = {};  // beginning of their names in checkpoints; "weight" and "bias" follow
  int64_t input_size = 0;
  ShardCut output;  // column cut: how the rows of the weight are cut; else its size alone counts
  bool bias = false;
  bool skip_bias_add = false;  // of a column cut: leaves its bias to the caller, who has a kernel that adds it
  DType dtype = DType::kFloat32;
  double init_std = 0.02;
  bool is_embedding_or_output = false;
  bool sequence_parallel = false;
  TensorCommOverlap overlap = {};
};

/// y = x W^T + b with the rows of W cut: each rank computes its part of the output features. With skip_bias_add b is
/// left out.
class ColumnParallelLinear : public Module {
 public:
  ColumnParallelLinear(const Context& ctx, const ParallelLinearOptions& options, const ProcessGroup& group);
  /// @param x [s, b, i] ([s/tp, b, i] under sequence parallelism).  @return [s, b, o/tp]
  Tensor forward(Context& ctx, const Tensor& x) const;
  Parameter& weight() const { return *weight_; }
  Parameter* bias() const { return bias_.get(); }

 private:
  ProcessGroup group_;
  LinearCommunicationOptions communication_;
  bool skip_bias_add_;
  std::unique_ptr<Parameter> weight_, bias_;
};

/// y = x W^T with W whole on every rank, which all compute alike; under sequence parallelism each computes its rows,
/// and the gradient of W is the sum over the ranks. Transformer Engine: parallel_mode "duplicated".
class DuplicatedLinear : public Module {
 public:
  DuplicatedLinear(const Context& ctx, const ParallelLinearOptions& options, const ProcessGroup& group);
  /// @param x [s, b, i] ([s/tp, b, i] under sequence parallelism).  @return the same rows, [.., b, o]
  Tensor forward(Context& ctx, const Tensor& x) const;

 private:
  std::unique_ptr<Parameter> weight_, bias_;
};

/// y = x W^T with the columns of W cut: each rank multiplies its part of the input features, the results are summed.
/// The bias is whole on every rank and is left to the caller, who adds it after the sum together with dropout and
/// residual.
class RowParallelLinear : public Module {
 public:
  RowParallelLinear(const Context& ctx, const ParallelLinearOptions& options, const ProcessGroup& group);
  /// @param x [s, b, i/tp].  @return [s, b, o] ([s/tp, b, o] under sequence parallelism), without bias.
  Tensor forward(Context& ctx, const Tensor& x) const;
  Parameter* bias() const { return bias_.get(); }

 private:
  ProcessGroup group_;
  LinearCommunicationOptions communication_;
  std::unique_ptr<Parameter> weight_, bias_;
};

}  // namespace megatron
