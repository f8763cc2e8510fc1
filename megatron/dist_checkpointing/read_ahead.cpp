#include "megatron/dist_checkpointing/read_ahead.h"

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"

namespace megatron {

ReadAhead::ReadAhead(std::vector<TensorSource*> sources)
    : sources_(std::move(sources)), thread_(start_thread("to read tensors ahead", [this] { prepare_all(); })) {}

ReadAhead::~ReadAhead() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void ReadAhead::next() {
  std::unique_lock lock(mutex_);
  require(num_read_ < sources_.size(), "[read ahead] all {} sources have been read", sources_.size());
  bytes_ahead_ -= sources_[num_read_++]->bytes();
  changed_.notify_all();
  changed_.wait(lock, [&] { return num_prepared_ >= num_read_ || failure_; });
  if (num_prepared_ < num_read_) std::rethrow_exception(failure_);
}

void ReadAhead::prepare_all() {
  set_thread_name("read ahead");
  for (size_t i = 0; i < sources_.size(); ++i) {
    {
      std::unique_lock lock(mutex_);
      const int64_t bytes = sources_[i]->bytes();
      changed_.wait(lock, [&] { return i <= num_read_ || bytes_ahead_ + bytes <= kBytesAhead || is_stopped_; });
      if (is_stopped_) return;
      bytes_ahead_ += bytes;
    }
    std::exception_ptr failure;
    try {
      sources_[i]->prepare();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    num_prepared_ += failure ? 0 : 1;
    changed_.notify_all();
    if (failure) return;
  }
}

}  // namespace megatron
