// Lays parameters out in a contiguous buffer, and cuts it into buckets and shards: pure functions of sizes.
// Megatron Core: core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace megatron {

/// Elements [begin, end) of something flat.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// Returns the elements that both have; begin == end if there are none.
ElementRange intersection(const ElementRange& a, const ElementRange& b);

struct BufferLayoutOptions {
  /// Parameters begin at multiples of 64 elements, buckets are padded to a multiple of the number of ranks and of 128,
  /// and a shared embedding has a bucket of its own. Without: no gaps at all.
  bool use_distributed_optimizer = false;
  int64_t data_parallel_size = 1;                // ranks that reduce the buffer together
  std::optional<int64_t> bucket_size;            // a bucket ends with the parameter that reaches this; none: one bucket
  bool pad_buckets_for_high_nccl_busbw = false;  // to multiples of 2^16 too
};

/// A value: the same on every rank that has the same parameters. Parameters lie in reverse order of registration,
/// roughly the order in which backward completes their gradients.
struct BufferLayout {
  /// A parameter, as the layout sees it.
  struct Entry {
    int64_t num_elements = 0;
    bool is_shared_embedding = false;  // tied between pipeline stages
  };
  struct Slot {
    ElementRange range;
    size_t bucket = 0;
  };
  struct Bucket {
    ElementRange range;           // padding at the end included
    int64_t num_unpadded = 0;     // up to the end of the last parameter; gaps between parameters count
    std::vector<size_t> entries;  // in the order in which they lie
  };
  /// The part of a parameter that a rank's shard of a bucket has, in four coordinates.
  struct Piece {
    size_t entry = 0;
    ElementRange in_buffer, in_bucket, in_shard, in_parameter;
  };

  std::vector<Slot> slots;  // by entry, in registration order
  std::vector<Bucket> buckets;
  int64_t data_parallel_size = 1;

  /// @param entries  in registration order.
  static BufferLayout make(std::span<const Entry> entries, const BufferLayoutOptions& options);

  int64_t num_elements() const { return buckets.empty() ? 0 : buckets.back().range.end; }
  int64_t num_unpadded() const;
  /// The equal part of a bucket that rank `rank` of the group owns with the distributed optimizer, whatever parameters
  /// it cuts; in elements of the buffer.
  ElementRange shard(size_t bucket, int64_t rank) const;
  /// Every parameter that has elements there, in the order in which they lie.
  std::vector<Piece> pieces(size_t bucket, int64_t rank) const;
};

}  // namespace megatron
