#include "megatron/datasets/data_loader.h"

#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"

namespace megatron {

template <class Id>
DataLoader<Id>::DataLoader(const Dataset& dataset, std::unique_ptr<Sampler> sampler, int prefetch_depth)
    : dataset_(dataset),
      sampler_(std::move(sampler)),
      prefetch_depth_(static_cast<size_t>(prefetch_depth)),
      consumed_samples_(sampler_->consumed_samples()) {
  require<ConfigError>(prefetch_depth >= 0, "a prefetch depth of {} batches is not possible", prefetch_depth);
  if (prefetch_depth > 0) thread_ = start_thread<std::thread>("to read training data ahead", [this] { prefetch(); });
}

template <class Id>
DataLoader<Id>::~DataLoader() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

template <class Id>
bool DataLoader<Id>::read_next(MicroBatch<Id>& batch) {
  if (!sampler_->next(indices_)) return false;
  assemble<Id>(dataset_, indices_, batch);
  batch.consumed_samples = sampler_->consumed_samples();
  return true;
}

template <class Id>
void DataLoader<Id>::prefetch() {
  set_worker_thread_name("loader");
  std::unique_lock lock(mutex_);
  while (!at_end_) {
    changed_.wait(lock, [&] { return stopping_ || ready_.size() < prefetch_depth_; });
    if (stopping_) return;
    MicroBatch<Id> batch;
    if (!unused_.empty()) {
      batch = std::move(unused_.back());
      unused_.pop_back();
    }
    lock.unlock();
    bool has_batch = false;
    std::exception_ptr error;
    try {
      has_batch = read_next(batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (has_batch) ready_.push_back(std::move(batch));
    at_end_ = !has_batch;
    error_ = error;
    changed_.notify_all();
  }
}

template <class Id>
bool DataLoader<Id>::next(MicroBatch<Id>& batch) {
  if (prefetch_depth_ == 0) {
    // A failed batch is not skipped: every later call throws its error.
    if (error_) std::rethrow_exception(error_);
    try {
      if (!read_next(batch)) return false;
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
    consumed_samples_ = batch.consumed_samples;
    return true;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || at_end_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return false;
  }
  unused_.push_back(std::move(batch));
  batch = std::move(ready_.front());
  ready_.pop_front();
  consumed_samples_ = batch.consumed_samples;
  lock.unlock();
  changed_.notify_all();
  return true;
}

template class DataLoader<int32_t>;
template class DataLoader<int64_t>;

}  // namespace megatron
