// Flags in host memory that streams of several GPUs set and wait for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/comm/nccl/nccl_library.h"
#include "megatron/comm/nccl/shared_page.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

/// A stream that waits for a flag occupies no multiprocessor. Flags are in host memory, so that ending a wait
/// needs no CUDA call, which could wait itself. Comparisons are cyclic, for flags that count up.
struct StreamFlag {
  static constexpr size_t kStride = 64;
  static constexpr int kNumInPage = static_cast<int>(SharedPage::kBytes / kStride);

  const SharedPage& page;
  int index = 0;
};

/// At most CopiedGroups::kMostRanks operations of each kind, in one batch of the stream, in order.
class StreamFlagOperations {
 public:
  /// Sets the flag after all earlier writes of the stream.
  void set(StreamFlag flag, uint32_t value);
  /// Waits until the flag is `value` or beyond.
  void await(StreamFlag flag, uint32_t value);
  /// @throw DeviceError
  void submit(const CudaDriver& driver, NcclLibrary::Stream stream);

 private:
  std::array<CUstreamBatchMemOpParams, 2 * CopiedGroups::kMostRanks> operations_{};
  unsigned num_operations_ = 0;
};

/// Sets all flags of a page beyond any awaited value near `value`. Any thread.
void release_flags(const SharedPage& page, uint32_t value) noexcept;

}  // namespace megatron
