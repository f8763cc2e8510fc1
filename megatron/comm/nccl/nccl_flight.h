// One operation on its way through a stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/comm/nccl/nccl_library.h"
#include "megatron/comm/nccl/pinned_pool.h"
#include "megatron/comm/nccl/rank_report.h"
#include "megatron/comm/operation.h"

struct CUevent_st;

namespace megatron {

/// Events without times, which go back for the next operation. Thread-safe.
class CudaEvents {
 public:
  CudaEvents() = default;
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;
  CUevent_st* take();
  void give_back(CUevent_st* event);

 private:
  std::mutex mutex_;
  std::vector<CUevent_st*> free_;
};

/// What an operation reads and writes; null: nothing.
struct NcclOperands {
  const void* input = nullptr;
  size_t input_bytes = 0;
  void* output = nullptr;
  size_t output_bytes = 0;
};
/// Puts an operation on a stream.
using NcclLaunch = std::function<void(const void* input, void* output, NcclLibrary::Stream)>;

/// Starts after what the compute stream held when it was made. Host memory among the operands goes through page-locked
/// memory, in the order of the stream, so that operations on it have the same rules as those on device memory.
class NcclFlight {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kRecorded = -1;  // as the number of its place
  struct Resources {
    CudaEvents& events;
    PinnedPool& pinned;
    NcclLibrary::Stream compute;
  };

  NcclFlight(const Resources& resources, const OperationInfo& info, std::string_view group, LanePlace place,
             const NcclOperands& operands);
  /// The launch of a CUDA graph that has operations in it. @param text  for messages
  NcclFlight(const Resources& resources, std::string text, std::chrono::milliseconds timeout, LanePlace place);
  ~NcclFlight();
  NcclFlight(const NcclFlight&) = delete;
  NcclFlight& operator=(const NcclFlight&) = delete;

  const OperationInfo& info() const { return info_; }
  const LanePlace& place() const { return place_; }
  /// Whether it went into a CUDA graph: then it has neither begin nor end of its own, only places among what the
  /// streams record.
  bool is_recorded() const { return place_.index == kRecorded; }
  std::string to_string() const {
    return text_.empty() ? describe(info_.op, info_.sequence, info_.site.view(), group_) : text_;
  }
  Time enqueued() const { return enqueued_; }
  /// Whether the host waits for it in Work::wait(): a barrier, or an operand is host memory.
  bool is_for_host() const { return is_for_host_; }
  static bool is_for_host(CommOp op, const NcclOperands& operands);

  /// Puts it on `stream`. Its memory of the host is not touched any more once `has_failed` says true.
  void launch(const NcclLaunch& function, NcclLibrary::Stream stream, const std::function<bool()>& has_failed);
  /// Puts what `function` launches on the compute stream.
  void launch_graph(const std::function<void()>& function);
  /// After launch(). @throw CommError naming the operation if the GPU reports an error, of whatever kernel
  bool has_started() const;
  bool has_ended() const;
  /// Whether the GPU does no more for it: it has ended, or an error has ended all.
  bool is_over() const noexcept;
  void make_stream_wait(NcclLibrary::Stream stream) const;

 private:
  struct HostCopy {
    const void* from;
    void* to;
    size_t bytes;
    std::function<bool()> has_failed;
  };
  bool has_passed(CUevent_st* event) const;
  void add_host_copy(const HostCopy& copy, NcclLibrary::Stream stream);

  Resources resources_;
  OperationInfo info_;
  std::string_view group_;  // lives as long as the world
  std::string text_;        // empty: that of the operation
  LanePlace place_;
  NcclOperands operands_;
  Time enqueued_;
  bool is_for_host_;
  bool is_input_staged_, is_output_staged_;
  CUevent_st *entry_, *start_, *end_;
  PinnedPool::Block input_, output_;
  std::vector<std::unique_ptr<HostCopy>> copies_;
};
using NcclFlightPtr = std::shared_ptr<NcclFlight>;

}  // namespace megatron
