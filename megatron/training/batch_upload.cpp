#include "megatron/training/batch_upload.h"

#include "megatron/core/copy.h"

namespace megatron {
namespace {

/// [b, s] on the host as [s, b] on the device, without a transposing copy.
template <class T>
Tensor upload_rows(const Context& ctx, std::string_view name, const std::vector<T>& rows, int64_t b, int64_t s) {
  Tensor x = ctx.empty(name, {b, s}, dtype_of<T>(), MemoryUse::kData);
  write_values(ctx.device, std::span<const T>(rows), x);
  return x.transpose(0, 1);
}

std::vector<int32_t> positions_of(const MicroBatch<int64_t>& batch) {
  const int64_t b = batch.num_samples, s = batch.sequence_length;
  std::vector<int32_t> positions(static_cast<size_t>(b * s));
  for (int64_t sample = 0; sample < b; ++sample)
    for (int64_t row = 0; row < s; ++row)
      positions[static_cast<size_t>(row * b + sample)] =
          static_cast<int32_t>(batch.position_ids[static_cast<size_t>(sample * s + row)]);
  return positions;
}

}  // namespace

GptMicroBatch upload(const Context& ctx, const MicroBatch<int64_t>& batch, const BatchUploadOptions& options) {
  const int64_t b = batch.num_samples, s = batch.sequence_length;
  std::vector<std::vector<int32_t>> cuts;
  for (int64_t sample = 0; sample < b; ++sample) {
    const auto of_sample = batch.document_cuts(sample);
    cuts.emplace_back(of_sample.begin(), of_sample.end());
  }
  Tensor loss_weight = ctx.empty("batch.loss_weight", {1}, DType::kFloat64, MemoryUse::kData);
  write_values(ctx.device, std::span(&options.loss_weight, 1), loss_weight);
  const SequenceLayout::Options layout{.s = s, .b = b, .first_sample = options.first_sample, .sequence_length = s};
  return {.tokens = upload_rows(ctx, "batch.tokens", batch.tokens, b, s),
          .labels = upload_rows(ctx, "batch.labels", batch.labels, b, s),
          .loss_mask = upload_rows(ctx, "batch.loss_mask", batch.loss_mask, b, s),
          .layout = SequenceLayout::cut_at(ctx, layout, cuts,
                                           options.has_positions ? positions_of(batch) : std::vector<int32_t>{}),
          .loss_weight = std::move(loss_weight)};
}

}  // namespace megatron
