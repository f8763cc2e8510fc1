// The weights of a mixture of experts from those of a dense model. Megatron Core:
// core/transformer/moe/upcycling_utils.py; He et al. 2024 (arXiv:2410.07524).
#pragma once

#include "megatron/dist_checkpointing/stored_tensors.h"
#include "megatron/models/model.h"

namespace megatron {

/// Shows the tensors of a dense model under the names of a mixture of experts. The width of the dense feed-forward is
/// cut into `granularity` slices, and expert i has slice i % granularity, so that neighbouring experts together are the
/// feed-forward. Their weights are scaled so that the sum over a token's experts is as large as it was. There is no
/// tensor for a router.
class UpcycledWeights final : public StoredTensors {
 public:
  /// @param dense  outlives this. @param config  of the mixture of experts
  UpcycledWeights(const StoredTensors& dense, const TransformerConfig& config, int64_t granularity);
  std::optional<ElementType> type_of(std::string_view key) const override;
  void read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                   const View& destination) const override;
  void read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const override;

  /// The factor of each of an expert's matrices. The sum over the experts of a token is the dense output if all of them
  /// have the same probability and the activation is homogeneous, such as squared ReLU.
  double scale() const { return scale_; }

 private:
  const StoredTensors& dense_;
  int64_t num_parts_, granularity_;  // parts of fc1: gate and up
  double scale_;
};

/// Gives experts that together are the dense feed-forward the same weights in their routers: row i becomes what row
/// i / granularity was.
void repeat_router_rows(const Context& ctx, Model& model, int64_t granularity);
/// Says whether a parameter is of a router, which a dense model does not have.
bool is_of_router(const Parameter& parameter);

}  // namespace megatron
