#include "megatron/training/context_batches.h"

#include <algorithm>
#include <string>

namespace megatron {
namespace {

/// The rank's part of values [num_samples, length].
template <class T>
std::vector<T> own_values(std::span<const T> values, int64_t num_samples, ContextCut cut) {
  cut.length = std::ssize(values) / num_samples;
  cut.check();
  std::vector<T> own;
  own.reserve(static_cast<size_t>(num_samples * cut.num_rows()));
  for (int64_t sample = 0; sample < num_samples; ++sample)
    for (const int64_t chunk : cut.chunks()) {
      const auto begin = values.begin() + sample * cut.length + chunk * cut.chunk_length();
      own.insert(own.end(), begin, begin + cut.chunk_length());
    }
  return own;
}

OwnedBatch own_part(const HostBatch& whole, const ContextCut& cut) {
  OwnedBatch own{.num_samples = whole.num_samples,
                 .sequence_length = whole.sequence_length,
                 .num_valid_tokens = whole.num_valid_tokens,
                 .tensors = {},
                 .sequences = {}};
  for (const HostTensor& tensor : whole.tensors) {
    OwnedBatch::Values& values = own.tensors.emplace_back(OwnedBatch::Values{std::string(tensor.name), {}});
    std::visit([&](auto all) { values.values = own_values(all, whole.num_samples, cut); }, tensor.values);
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

std::vector<OwnedBatch> own_parts(const MicroBatches& whole, const ContextCut& cut) {
  std::vector<OwnedBatch> parts;
  if (cut.size == 1) return parts;
  for (size_t m = 0; m < whole.size(); ++m) parts.push_back(own_part(whole[m], cut));
  return parts;
}

}  // namespace

ContextBatches::ContextBatches(const MicroBatches& whole, const ContextCut& cut)
    : cut_(own_parts(whole, cut)), own_(cut.size == 1 ? whole : MicroBatches(cut_)) {}

}  // namespace megatron
