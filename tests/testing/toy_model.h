// A small model that has one of everything the engine must handle: tied, frozen, unused and skipped weights, attention,
// dropout, a dead branch, and two experts whose row counts lie in device memory.
#pragma once

#include <memory>
#include <vector>

#include "megatron/autograd/segment.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/ops/move_rows.h"
#include "megatron/tensor_parallel/layers.h"

namespace megatron::testing {

struct ToyBatch {
  Tensor tokens, labels, loss_mask;  // [s, b]
  SequenceLayout layout;
  std::vector<IndexList> routed;  // rows of each expert
  bool skips_last_expert = false;
};

struct ToyOptions {
  DType dtype = DType::kFloat64;
  bool recompute = false;
  bool is_frozen = false;  // embedding and attention are not trained
  std::string prefix;      // of parameter names, to tell two models apart
};

/// Sizes: s = 6, h = 8, 2 heads, f = 16, 11 tokens padded to 12.
class ToyModel {
 public:
  static constexpr int64_t kSequence = 6, kHidden = 8, kHeads = 2, kFfn = 16, kVocabulary = 11, kPadded = 12;
  static constexpr double kDropout = 0.25;

  ToyModel(const Context& ctx, const ProcessGroup& tensor_group, const ToyOptions& options);
  void initialize(const Context& ctx);

  /// embedding, attention, experts, head. @param batches must outlive the chunk.
  Chunk segments(const std::vector<ToyBatch>& batches) const;
  std::vector<Parameter*> parameters() const;
  /// Output of the experts' segment: what a student learns from a teacher.
  Tensor hidden(Context& ctx, const ToyBatch& batch) const;

 private:
  Payload embed(Context& ctx, const ToyBatch& batch) const;
  Payload attend(Context& ctx, const Payload& in, const ToyBatch& batch) const;
  Payload route(Context& ctx, const Payload& in, const ToyBatch& batch) const;
  Payload head(Context& ctx, const Payload& in, const ToyBatch& batch) const;
  Parameter* make(const Context& ctx, const std::string& name, const Shape& shape, bool is_trainable);

  ToyOptions options_;
  int64_t local_heads_, first_head_;
  std::vector<std::unique_ptr<Parameter>> own_;
  Parameter *tied_, *frozen_, *never_, *unlisted_, *norm1_, *norm2_, *norm3_, *dead_;
  struct Expert {
    Parameter *up, *down;
  };
  std::vector<Expert> experts_;
  std::unique_ptr<ColumnParallelLinear> qkv_;
  std::unique_ptr<RowParallelLinear> proj_;
};

/// The micro-batches [first, first + num) of `total` global samples, one sample each.
std::vector<ToyBatch> toy_batches(const Context& ctx, int num_micro_batches);

}  // namespace megatron::testing
