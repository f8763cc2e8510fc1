// Values saved for backward that lie in host memory until it needs them, copied beside kernels.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "megatron/core/device.h"
#include "megatron/core/storage.h"

namespace megatron {

/// A block of device memory that saved values share: there, or in host memory, or both while it is copied. It lives as
/// long as a SavedTensor has it.
class OffloadedBlock {
 public:
  OffloadedBlock(Device& device, Storage storage) : device_(device), on_device_(std::move(storage)) {}
  ~OffloadedBlock();
  OffloadedBlock(const OffloadedBlock&) = delete;
  OffloadedBlock& operator=(const OffloadedBlock&) = delete;

  /// The memory on the device. Kernels launched later wait for its copy; brings it there where nobody has done so.
  Storage storage();
  bool has(const Storage& storage) const { return on_device_ == storage; }

 private:
  friend class OffloadedValues;
  void send();
  void leave() { on_device_ = {}; }
  void fetch();

  Device& device_;
  Storage on_device_, on_host_;
  bool is_arriving_ = false;
  CopyQueue::Mark arrived_ = 0;  // while is_arriving_
};

/// Those of one tape. What a segment has saved is sent when the segment is over, leaves the device when kDistance more
/// segments are, and is fetched when backward is kDistance segments away: copies then run beside the segments in
/// between. All of it follows from the order of segments alone, so addresses do not depend on time. What is saved so
/// late that backward would need it before it has left stays on the device.
/// Megatron Core: core/pipeline_parallel/fine_grained_activation_offload.py; Transformer Engine: cpu_offload.py.
class OffloadedValues {
 public:
  /// Attention and feed-forward of a layer are segments, so copies have the time of a layer.
  static constexpr size_t kDistance = 2;

  /// @param num_segments  that forward will have
  OffloadedValues(Device& device, size_t num_segments) : device_(device), groups_(num_segments) {}

  /// Forward begins a segment.
  void begin_segment(size_t segment);
  /// The segment that runs saves a value of this memory for backward. Memory is sent once, however many values it has.
  std::shared_ptr<OffloadedBlock> keep(const Storage& storage);
  /// Backward begins a segment, from the last one down.
  void begin_backward(size_t segment);

 private:
  struct Group {
    std::vector<std::weak_ptr<OffloadedBlock>> blocks;
    CopyQueue::Mark sent = 0;
    bool is_away = false, is_fetched = false;
  };
  template <class Function>
  static void for_each(Group& group, Function&& function) {
    for (const auto& block : group.blocks)
      if (const auto live = block.lock()) function(*live);
  }
  void send(Group& group);
  void leave(Group& group);
  void fetch(Group& group);

  Device& device_;
  std::vector<Group> groups_;  // of the segments
  size_t segment_ = 0;         // that forward runs
};

}  // namespace megatron
