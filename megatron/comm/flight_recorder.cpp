#include "megatron/comm/flight_recorder.h"

#include <algorithm>

namespace megatron {

int64_t FlightRecorder::add(const OperationRecord& record) {
  const std::lock_guard lock(mutex_);
  ring_[static_cast<size_t>(num_operations_) % ring_.size()] = record;
  return num_operations_++;
}

OperationRecord* FlightRecorder::find(int64_t number) {
  const bool kept = number < num_operations_ && number >= num_operations_ - static_cast<int64_t>(ring_.size());
  return kept ? &ring_[static_cast<size_t>(number) % ring_.size()] : nullptr;
}

void FlightRecorder::waited(int64_t number, OperationRecord::Time time) {
  const std::lock_guard lock(mutex_);
  if (OperationRecord* record = find(number)) record->waited = time;
}

void FlightRecorder::ended(int64_t number, OperationRecord::Time started, OperationRecord::Time ended) {
  const std::lock_guard lock(mutex_);
  if (OperationRecord* record = find(number)) {
    record->started = started;
    record->ended = ended;
  }
}

int64_t FlightRecorder::num_operations() const {
  const std::lock_guard lock(mutex_);
  return num_operations_;
}

std::vector<OperationRecord> FlightRecorder::since(int64_t first) const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationRecord> records;
  first = std::max(first, num_operations_ - static_cast<int64_t>(ring_.size()));
  for (int64_t number = std::max<int64_t>(first, 0); number < num_operations_; ++number)
    records.push_back(ring_[static_cast<size_t>(number) % ring_.size()]);
  return records;
}

std::optional<OperationRecord> FlightRecorder::last() const {
  const std::lock_guard lock(mutex_);
  if (num_operations_ == 0) return std::nullopt;
  return ring_[static_cast<size_t>(num_operations_ - 1) % ring_.size()];
}

}  // namespace megatron
