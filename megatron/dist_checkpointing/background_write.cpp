#include "megatron/dist_checkpointing/background_write.h"

#include "megatron/base/thread_name.h"
#include "megatron/base/thread_priority.h"
#include "megatron/base/thread_start.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"

namespace megatron {

BackgroundWrite::BackgroundWrite(CheckpointWriter& writer, int num_files, const BackgroundPriority& priority,
                                 std::stop_source stop)
    : stop_(std::move(stop)),
      thread_(start_thread<std::thread>("to write a checkpoint while training goes on (--async-save)",
                                        [this, &writer, num_files, priority] { run(writer, num_files, priority); })) {}

BackgroundWrite::~BackgroundWrite() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWrite::run(CheckpointWriter& writer, int num_files, const BackgroundPriority& priority) {
  try {
    set_thread_name("async save");
    priority_problem_ = set_thread_priority(priority.niceness, priority.io_class);
    stored_ = writer.write(num_files, WriteThreads::kOnePerFile);
  } catch (...) {
    failure_ = std::current_exception();
  }
  is_over_.store(true, std::memory_order_release);
}

CheckpointMetadata BackgroundWrite::take() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
  return std::move(stored_);
}

}  // namespace megatron
