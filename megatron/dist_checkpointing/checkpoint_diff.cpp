#include "megatron/dist_checkpointing/checkpoint_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/tensor_values.h"

namespace megatron {
namespace {

constexpr int64_t kSlabElements = 1 << 20;

std::string description(const GlobalTensor& tensor) { return fmt::format("{} {}", tensor.type, tensor.shape); }

std::vector<std::byte> bytes_of(const CheckpointReader& reader, const std::string& key, ElementType type,
                                const Box& box) {
  std::vector<std::byte> bytes(static_cast<size_t>(box.sizes.num_elements() * size_of(type)));
  reader.read_box(key, box, bytes.data());
  return bytes;
}

void add_values(std::span<const double> first, std::span<const double> second, const DiffOptions& options,
                TensorDifference& difference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < first.size(); ++i) {
    const double a = first[i], b = second[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const bool are_finite = std::isfinite(a) && std::isfinite(b);
    const double absolute = are_finite ? std::abs(a - b) : kInfinity;
    difference.max_absolute = std::max(difference.max_absolute, absolute);
    difference.max_relative =
        std::max(difference.max_relative, are_finite ? absolute / std::max(std::abs(a), std::abs(b)) : kInfinity);
    if (!are_finite || absolute > options.absolute_tolerance + options.relative_tolerance * std::abs(b))
      ++difference.num_different;
  }
}

/// Types without numbers are compared by the bits of their elements.
void add_bits(std::span<const std::byte> first, std::span<const std::byte> second, size_t element_bytes,
              TensorDifference& difference) {
  difference.max_absolute = difference.max_relative = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < first.size(); i += element_bytes)
    difference.num_different += std::memcmp(first.data() + i, second.data() + i, element_bytes) != 0;
}

using Tensors = std::map<std::string, GlobalTensor, std::less<>>;

/// The key among `theirs` of a tensor of ours: its own, or the other name that a norm has there.
std::string key_among(const Tensors& theirs, const Tensors& ours, const std::string& key) {
  std::string other = other_norm_key(key);
  const bool is_other = !other.empty() && !theirs.contains(key) && theirs.contains(other) && !ours.contains(other);
  return is_other ? other : key;
}

/// Counts the elements that differ and the largest differences. @param second_key  that of the second checkpoint
void compare_values(const CheckpointReader& first, const CheckpointReader& second, const std::string& second_key,
                    const DiffOptions& options, TensorDifference& difference) {
  const GlobalTensor& a = first.whole_tensors().tensors.find(difference.key)->second;
  const GlobalTensor& b = second.whole_tensors().tensors.find(second_key)->second;
  for (const Box& slab : cut_into_slabs(a.shape, kSlabElements)) {
    const std::vector<std::byte> a_bytes = bytes_of(first, difference.key, a.type, slab);
    const std::vector<std::byte> b_bytes = bytes_of(second, second_key, b.type, slab);
    if (options.on_bytes) options.on_bytes(std::ssize(a_bytes));
    if (a.type == b.type && a_bytes == b_bytes) continue;
    if (has_values(a.type) && has_values(b.type))
      add_values(values_of(a.type, a_bytes), values_of(b.type, b_bytes), options, difference);
    else if (a.type == b.type)
      add_bits(a_bytes, b_bytes, static_cast<size_t>(size_of(a.type)), difference);
  }
}

}  // namespace

std::vector<TensorDifference> compare_checkpoints(const CheckpointReader& first, const CheckpointReader& second,
                                                  const DiffOptions& options) {
  using Kind = TensorDifference::Kind;
  std::set<std::string> keys;
  for (const CheckpointReader* reader : {&first, &second})
    for (const auto& [key, tensor] : reader->whole_tensors().tensors)
      if (!options.takes || options.takes(key)) keys.insert(key);
  const Tensors &ours = first.whole_tensors().tensors, &theirs = second.whole_tensors().tensors;
  std::vector<TensorDifference> differences;
  for (const std::string& key : keys) {
    if (!ours.contains(key) && key_among(ours, theirs, key) != key) continue;  // compared under the other name
    TensorDifference difference{.key = key, .first = {}, .second = {}};
    const std::string second_key = key_among(theirs, ours, key);
    const auto a = ours.find(key), b = theirs.find(second_key);
    const bool in_first = a != ours.end(), in_second = b != theirs.end();
    if (in_first) difference.first = description(a->second);
    if (in_second) difference.second = description(b->second);
    if (!in_first || !in_second) {
      difference.kind = in_first ? Kind::kOnlyInFirst : Kind::kOnlyInSecond;
    } else if (a->second.shape != b->second.shape) {
      difference.kind = Kind::kShape;
    } else {
      compare_values(first, second, second_key, options, difference);
      const bool is_same_type = a->second.type == b->second.type;
      if (!is_same_type) difference.kind = Kind::kDtype;
      if (is_same_type && difference.num_different == 0) continue;
    }
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace megatron
