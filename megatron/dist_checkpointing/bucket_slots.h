// The places of parameters in the flat buckets of Megatron's DistributedOptimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace megatron {

struct BucketSlot {
  size_t bucket = 0;
  int64_t begin = 0;  ///< in the bucket
  bool operator==(const BucketSlot&) const = default;
};

/// A parameter, as a bucket sees it.
struct BucketEntry {
  int64_t num_elements = 0;
  bool is_shared_embedding = false;  ///< tied between pipeline stages: it has a bucket of its own
};

/// Sizes of the buckets without the padding at their ends.
/// @param entries  in registration order. @param limit  a bucket ends with the parameter that reaches it; none: one
/// bucket.
std::vector<int64_t> bucket_sizes(std::span<const BucketEntry> entries, const std::optional<int64_t>& limit);

/// Places parameters in buckets of known sizes: in reverse order of registration, each at a multiple of 64 elements.
/// @return the slots in registration order; nothing if they do not fill the buckets.
std::optional<std::vector<BucketSlot>> bucket_slots(std::span<const BucketEntry> entries,
                                                    std::span<const int64_t> sizes);

}  // namespace megatron
