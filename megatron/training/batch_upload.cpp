#include "megatron/training/batch_upload.h"

#include <utility>

#include "megatron/core/copy.h"

namespace megatron {
namespace {

/// [b, s] on the host as [s, b] on the device, without a transposing copy.
template <class T>
Tensor upload_rows(const Context& ctx, std::string_view name, std::span<const T> rows, int64_t b) {
  Tensor x = ctx.empty(name, {b, std::ssize(rows) / b}, dtype_of<T>(), MemoryUse::kData);
  write_values(ctx.device, rows, x);
  return x.transpose(0, 1);
}

std::vector<int32_t> positions_of(const HostSequences& sequences, int64_t b) {
  const int64_t s = sequences.length;
  std::vector<int32_t> positions(static_cast<size_t>(b * s));
  for (int64_t sample = 0; sample < b; ++sample)
    for (int64_t row = 0; row < s; ++row)
      positions[static_cast<size_t>(row * b + sample)] =
          static_cast<int32_t>(sequences.position_ids[static_cast<size_t>(sample * s + row)]);
  return positions;
}

SequenceLayout upload_layout(const Context& ctx, const HostSequences& sequences, int64_t b,
                             const BatchUploadOptions& options) {
  std::vector<std::vector<int32_t>> cuts;
  for (int64_t sample = 0; sample < b; ++sample) {
    const auto of_sample = sequences.cuts_of(sample);
    cuts.emplace_back(of_sample.begin(), of_sample.end());
  }
  const int64_t s = sequences.length;
  std::vector<int32_t> positions = options.has_positions ? positions_of(sequences, b) : std::vector<int32_t>{};
  if (options.context.cut.size > 1) {
    ContextLayoutOptions context = options.context;
    context.cut.length = s;
    return context_parallel_layout(ctx,
                                   {.b = b,
                                    .first_sample = options.first_sample,
                                    .cuts = std::move(cuts),
                                    .positions = std::move(positions),
                                    .sample_length = options.sample_length,
                                    .first_position = options.first_position},
                                   context);
  }
  Tensor row_numbers;
  if (!options.row_numbers.empty()) {
    require<ShapeError>(b == 1 && std::ssize(options.row_numbers) == s,
                        "[upload] {} numbers of rows for {} samples of {} tokens.", options.row_numbers.size(), b, s);
    row_numbers = ctx.empty("layout.row_numbers", {s}, DType::kInt32, MemoryUse::kData);
    write_values(ctx.device, options.row_numbers, row_numbers);
  }
  return SequenceLayout::cut_at(ctx,
                                {.s = s,
                                 .b = b,
                                 .first_sample = options.first_sample,
                                 .sequence_length = options.sample_length > 0 ? options.sample_length : s,
                                 .first_position = options.first_position,
                                 .sample_positions = row_numbers,
                                 .span_capacity = b * options.context.max_documents},
                                cuts, positions);
}

}  // namespace

Batch upload(const Context& ctx, const HostBatch& batch, const BatchUploadOptions& options) {
  Batch uploaded;
  Tensor loss_weight = ctx.empty("batch.loss_weight", {1}, DType::kFloat64, MemoryUse::kData);
  write_values(ctx.device, std::span(&options.loss_weight, 1), loss_weight);
  for (const HostTensor& tensor : batch.tensors) {
    const std::string place = fmt::format("batch.{}", tensor.name);
    uploaded.tensors.push_back(
        {std::string(tensor.name),
         std::visit([&](auto values) { return upload_rows(ctx, place, values, batch.num_samples); }, tensor.values)});
  }
  uploaded.tensors.push_back({"loss_weight", std::move(loss_weight)});
  for (const HostSequences& sequences : batch.sequences)
    uploaded.layouts.push_back(
        {std::string(sequences.name), upload_layout(ctx, sequences, batch.num_samples, options)});
  return uploaded;
}

}  // namespace megatron
