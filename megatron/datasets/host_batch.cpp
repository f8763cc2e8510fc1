#include "megatron/datasets/host_batch.h"

namespace megatron {

HostBatch host_batch_of(const OwnedBatch& batch) {
  HostBatch view{.num_samples = batch.num_samples,
                 .sequence_length = batch.sequence_length,
                 .num_valid_tokens = batch.num_valid_tokens,
                 .tensors = {},
                 .sequences = {}};
  for (const OwnedBatch::Values& tensor : batch.tensors) {
    HostTensor& added = view.tensors.emplace_back(HostTensor{.name = tensor.name, .values = {}});
    std::visit([&](const auto& values) { added.values = std::span(values); }, tensor.values);
  }
  for (const OwnedBatch::Sequences& sequences : batch.sequences)
    view.sequences.push_back({.name = sequences.name,
                              .length = sequences.length,
                              .cuts = sequences.cuts,
                              .cut_ends = sequences.cut_ends,
                              .position_ids = sequences.position_ids});
  return view;
}

}  // namespace megatron
