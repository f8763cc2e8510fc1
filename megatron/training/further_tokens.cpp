#include "megatron/training/further_tokens.h"

#include <iterator>
#include <list>
#include <string>
#include <utility>

#include "megatron/models/gpt/gpt_mtp.h"
#include "megatron/training/context_batches.h"

namespace megatron {
namespace {

/// The tensor's values `num` positions further in each sample.
OwnedBatch::Values shifted(const HostTensor& tensor, int64_t num_samples, int64_t num) {
  OwnedBatch::Values result{further_name(tensor.name, num), {}};
  std::visit(
      [&]<class T>(std::span<const T> values) {
        const int64_t length = std::ssize(values) / num_samples;
        std::vector<T> moved(values.size());
        for (int64_t sample = 0; sample < num_samples && num < length; ++sample) {
          const auto begin = values.begin() + sample * length;
          std::copy(begin + num, begin + length, moved.begin() + sample * length);
        }
        result.values = std::move(moved);
      },
      tensor.values);
  return result;
}

HostTensor view_of(const OwnedBatch::Values& owned) {
  HostTensor view{.name = owned.name, .values = {}};
  std::visit([&](const auto& values) { view.values = std::span(values); }, owned.values);
  return view;
}

OwnedBatch::Values whole_mask(const HostTensor& mask) {
  const auto values = std::get<std::span<const float>>(mask.values);
  return {whole_name(mask.name), std::vector<float>(values.begin(), values.end())};
}

OwnedBatch part_with_further_tokens(HostBatch whole, const ContextCut& cut, int64_t num) {
  std::list<OwnedBatch::Values> further;  // which views refer to
  std::vector<OwnedBatch::Values> masks;
  for (const HostTensor& tensor : whole.tensors) {
    const bool is_mask = tensor.name == kLossMask;
    if (is_mask) masks.push_back(whole_mask(tensor));
    for (int64_t depth = 1; depth <= num; ++depth) {
      further.push_back(shifted(tensor, whole.num_samples, depth));
      if (is_mask) masks.push_back(whole_mask(view_of(further.back())));
    }
  }
  for (const OwnedBatch::Values& values : further) whole.tensors.push_back(view_of(values));
  OwnedBatch own = part_of_rank(whole, cut);
  std::ranges::move(masks, std::back_inserter(own.tensors));
  return own;
}

}  // namespace

std::vector<OwnedBatch> parts_with_further_tokens(const MicroBatches& whole, const ContextCut& cut, int64_t num) {
  std::vector<OwnedBatch> parts;
  parts.reserve(whole.size());
  for (size_t m = 0; m < whole.size(); ++m) parts.push_back(part_with_further_tokens(whole[m], cut, num));
  return parts;
}

}  // namespace megatron
