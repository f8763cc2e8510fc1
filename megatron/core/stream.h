// A kernel's first argument: the stream on which it runs, and the tag by which its backend is chosen at compile time.
#pragma once

#include <memory>

namespace megatron {

/// Handles and caches of a device's libraries (oneDNN primitives, cuBLASLt plans); each backend's kernels define
/// theirs. Owned by the Device, so two trainers in one process share nothing.
class LibraryHandles {
 public:
  virtual ~LibraryHandles() = default;
};

/// A CPU "stream": kernels run at once, on `num_threads` OpenMP threads (architecture D17).
struct CpuStream {
  int num_threads = 1;
  std::unique_ptr<LibraryHandles>* libraries = nullptr;  // slot that the kernels fill on first use
};

}  // namespace megatron
