// A device of one rank: its kind, its memory, its stream and its library handles.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/core/arena.h"
#include "megatron/core/cuda_device.h"
#include "megatron/core/random.h"
#include "megatron/core/stream.h"

namespace megatron {

class Profiler;

/// meta runs the fronts of all ops and no kernel: shapes, memory and operation counts of a run without running it.
enum class DeviceKind { kCpu, kCuda, kMeta };

/// One per rank; everything that an op needs from the machine hangs on it, so that two trainers share nothing. Made and
/// used on the rank's thread: CUDA has a current device for each thread.
class Device {
 public:
  struct Options {
    int num_threads = 1;  // OpenMP threads of this rank's kernels
    int64_t capacity_bytes = 0;
    bool poison = false;
    bool record_events = false;
    bool guard = false;                     // cpu: the host dies where it touches the arena (GuardedHostMemory)
    int cuda_device = 0;                    // number of the GPU
    DeviceKind meta_of = DeviceKind::kCpu;  // whose memory a meta device plans: kernels ask for different workspaces
  };
  /// @throw DeviceError for cuda, and meta of cuda, where the build has none or no GPU answers.
  Device(DeviceKind kind, const Options& options);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const { return kind_; }
  bool is_meta() const { return kind_ == DeviceKind::kMeta; }
  /// kCpu or kCuda: whose kernels run, or on meta would run.
  DeviceKind backend() const { return backend_; }
  const CpuStream& cpu_stream() const { return cpu_stream_; }
  /// One compute stream a device, owned here. On meta without a stream behind it.
  const CudaStream& cuda_stream() const { return cuda_stream_; }
  /// For a profile of kernels that run apart from the host; null on cpu and meta.
  std::unique_ptr<DeviceTracer> make_tracer();
  /// Copies beside kernels between `arena` and `pinned`, a queue for each direction.
  CopyQueue& copies_to_host();
  CopyQueue& copies_to_device();
  /// Waits until all kernels are over. On cuda a host sync.
  void synchronize();
  /// Differs from those of other devices too: a tensor of another model's tape must not pass for one of this.
  uint32_t next_tape_number() { return ++num_tapes_; }

 private:
  DeviceKind kind_, backend_;
  std::unique_ptr<CudaDevice> cuda_;  // before the arenas, which live in its memory
  std::unique_ptr<LibraryHandles> libraries_;
  CpuStream cpu_stream_;
  CudaStream cuda_stream_;
  uint32_t num_tapes_;

 public:
  Arena arena;
  Arena pinned;                  // host memory for offloaded values, which kernels reach too
  int64_t num_operations = 0;    // multiplications and additions of matrix products and attention, counted by fronts
  Profiler* profiler = nullptr;  // told of every op; null: nobody

 private:
  std::unique_ptr<CopyQueue> make_copy_queue();

  std::unique_ptr<CopyQueue> to_host_, to_device_;  // made when they are first asked for
};

}  // namespace megatron
