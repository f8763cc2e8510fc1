// One operation in flight on a stream.
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

/// A pool of CUDA events without timing. Thread-safe.
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

/// The operands that an operation reads and writes; null: none.
struct NcclOperands {
  const void* input = nullptr;
  size_t input_bytes = 0;
  void* output = nullptr;
  size_t output_bytes = 0;
};
/// Puts an operation on a stream.
using NcclLaunch = std::function<void(const void* input, void* output, NcclLibrary::Stream)>;

/// Starts after the work in the compute stream at its construction. Operands in host memory are copied through
/// page-locked memory, in stream order, so that the same rules hold as for device memory.
class NcclFlight {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kRecorded = -1;  // instead of a number in its lane
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
  /// Says whether a CUDA graph captured it: then it has no begin or end of its own, only a position in the
  /// captured streams.
  bool is_recorded() const { return place_.index == kRecorded; }
  std::string to_string() const {
    return text_.empty() ? describe(info_.op, info_.sequence, info_.site.view(), group_) : text_;
  }
  Time enqueued() const { return enqueued_; }
  /// Says whether the host waits for it in Work::wait(): a barrier, or an operand is host memory.
  bool is_for_host() const { return is_for_host_; }
  static bool is_for_host(CommOp op, const NcclOperands& operands);

  /// Puts it on `stream`. Its host memory is not touched any more once `has_failed` returns true.
  void launch(const NcclLaunch& function, NcclLibrary::Stream stream, const std::function<bool()>& has_failed);
  /// Puts the launches of `function` on the compute stream.
  void launch_graph(const std::function<void()>& function);
  /// After launch(). @throw CommError naming the operation if the GPU reports an error of any kernel
  bool has_started() const;
  bool has_ended() const;
  /// Says whether the GPU has finished with it: it has ended, or an error has ended all work.
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
  std::string text_;        // empty: the operation's text
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
