#include "megatron/autograd/offloaded_values.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

/// Nothing may take the memory before the copy into it is over.
OffloadedBlock::~OffloadedBlock() {
  try {
    if (is_arriving_) device_.copies_to_device().hold_kernels(arrived_);
  } catch (const DeviceError&) {  // a device that has failed runs nothing that could touch the memory
  }
}

void OffloadedBlock::send() {
  on_host_ = Storage(device_.pinned, "saved.host", on_device_.bytes(), MemoryUse::kActivations);
  device_.copies_to_host().copy(on_device_.data(), on_host_.data(), on_device_.bytes());
}

void OffloadedBlock::fetch() {
  on_device_ = Storage(device_.arena, "saved.fetched", on_host_.bytes(), MemoryUse::kActivations);
  CopyQueue& queue = device_.copies_to_device();
  queue.wait_for_kernels();  // that had the memory before
  queue.copy(on_host_.data(), on_device_.data(), on_host_.bytes());
  arrived_ = queue.mark();
  is_arriving_ = true;
}

Storage OffloadedBlock::storage() {
  if (!on_device_.defined()) fetch();
  if (std::exchange(is_arriving_, false)) device_.copies_to_device().hold_kernels(arrived_);
  return on_device_;
}

std::shared_ptr<OffloadedBlock> OffloadedValues::keep(const Storage& storage) {
  Group& group = groups_.at(segment_);
  for (const auto& block : group.blocks)
    if (auto live = block.lock(); live && live->has(storage)) return live;
  auto block = std::make_shared<OffloadedBlock>(device_, storage);
  group.blocks.push_back(block);
  return block;
}

void OffloadedValues::begin_segment(size_t segment) {
  require(segment < groups_.size(), "[OffloadedValues] segment {} of {}.", segment, groups_.size());
  segment_ = segment;
  if (segment > 0 && segment + kDistance < groups_.size()) send(groups_[segment - 1]);
  if (segment > kDistance) leave(groups_[segment - 1 - kDistance]);
}

void OffloadedValues::begin_backward(size_t segment) {
  const size_t first = segment - std::min(segment, kDistance);
  for (size_t s = segment + 1; s-- > first;) fetch(groups_.at(s));
}

void OffloadedValues::send(Group& group) {
  if (group.blocks.empty()) return;
  CopyQueue& queue = device_.copies_to_host();
  queue.wait_for_kernels();
  for_each(group, [](OffloadedBlock& block) { block.send(); });
  group.sent = queue.mark();
  group.is_away = true;
}

void OffloadedValues::leave(Group& group) {
  if (!group.is_away) return;
  device_.copies_to_host().hold_kernels(group.sent);
  for_each(group, [](OffloadedBlock& block) { block.leave(); });
}

void OffloadedValues::fetch(Group& group) {
  if (!group.is_away || std::exchange(group.is_fetched, true)) return;
  for_each(group, [](OffloadedBlock& block) { block.fetch(); });
}

}  // namespace megatron
