#include "megatron/training/context_batches.h"

#include <algorithm>
#include <string>
#include <utility>

namespace megatron {
namespace {

/// Documents of the samples whose rows are those of a tensor, none where the batch names no such sequences.
const HostSequences* sequences_of(const HostBatch& batch, int64_t length) {
  const auto found = std::ranges::find(batch.sequences, length, &HostSequences::length);
  return found == batch.sequences.end() ? nullptr : &*found;
}

/// The rank's part of values [num_samples, length].
template <class T>
std::vector<T> own_values(std::span<const T> values, const HostBatch& batch, ContextCut cut) {
  cut.length = std::ssize(values) / batch.num_samples;
  cut.check();
  const HostSequences* sequences = sequences_of(batch, cut.length);
  std::vector<T> own;
  own.reserve(static_cast<size_t>(batch.num_samples * cut.num_rows()));
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    const auto cuts = sequences ? sequences->cuts_of(sample) : std::span<const int32_t>();
    const auto begin = values.begin() + sample * cut.length;
    for (const PositionRange& run : cut.runs_of(cut.units_of(cuts)))
      own.insert(own.end(), begin + run.begin, begin + run.end);
  }
  return own;
}

}  // namespace

OwnedBatch part_of_rank(const HostBatch& whole, const ContextCut& cut) {
  OwnedBatch own{.num_samples = whole.num_samples,
                 .sequence_length = whole.sequence_length,
                 .num_valid_tokens = whole.num_valid_tokens,
                 .tensors = {},
                 .sequences = {}};
  for (const HostTensor& tensor : whole.tensors) {
    OwnedBatch::Values& values = own.tensors.emplace_back(OwnedBatch::Values{std::string(tensor.name), {}});
    std::visit([&](auto all) { values.values = own_values(all, whole, cut); }, tensor.values);
    if (const auto* mask = std::get_if<std::vector<float>>(&values.values); mask && tensor.name == kLossMask)
      own.num_valid_tokens = std::ssize(*mask) - std::ranges::count(*mask, 0.0F);
  }
  for (const HostSequences& sequences : whole.sequences)
    own.sequences.push_back({.name = std::string(sequences.name),
                             .length = sequences.length,
                             .cuts = {sequences.cuts.begin(), sequences.cuts.end()},
                             .cut_ends = {sequences.cut_ends.begin(), sequences.cut_ends.end()},
                             .position_ids = {sequences.position_ids.begin(), sequences.position_ids.end()}});
  return own;
}

namespace {

std::vector<OwnedBatch> own_parts(const MicroBatches& whole, const ContextCut& cut) {
  std::vector<OwnedBatch> parts;
  if (cut.size == 1) return parts;
  for (size_t m = 0; m < whole.size(); ++m) parts.push_back(part_of_rank(whole[m], cut));
  return parts;
}

}  // namespace

ContextBatches::ContextBatches(const MicroBatches& whole, const ContextCut& cut)
    : cut_(own_parts(whole, cut)), own_(cut.size == 1 ? whole : MicroBatches(cut_)) {}

ContextBatches::ContextBatches(std::vector<OwnedBatch> own, std::vector<BatchPlace> places)
    : cut_(std::move(own)), places_(std::move(places)), own_(cut_) {}

}  // namespace megatron
