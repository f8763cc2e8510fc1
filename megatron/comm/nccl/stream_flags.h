// Words of host memory that streams of several GPUs set and wait for.
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

/// A stream that waits for a flag keeps no multiprocessor busy. Flags lie on the host, so that who is to end a wait
/// needs no call of CUDA, which could wait itself. Comparisons are cyclic, for flags that count up.
struct StreamFlag {
  static constexpr size_t kStride = 64;
  static constexpr int kNumInPage = static_cast<int>(SharedPage::kBytes / kStride);

  const SharedPage& page;
  int index = 0;
};

/// At most CopiedGroups::kMostRanks of each kind, which a stream does in one go, one after the other.
class StreamFlagOperations {
 public:
  /// After all that the stream has written.
  void set(StreamFlag flag, uint32_t value);
  /// Until it is `value` or has passed it.
  void await(StreamFlag flag, uint32_t value);
  /// @throw DeviceError
  void submit(const CudaDriver& driver, NcclLibrary::Stream stream);

 private:
  std::array<CUstreamBatchMemOpParams, 2 * CopiedGroups::kMostRanks> operations_{};
  unsigned num_operations_ = 0;
};

/// Sets all flags of a page beyond any value near `value` that is waited for. Any thread.
void release_flags(const SharedPage& page, uint32_t value) noexcept;

}  // namespace megatron
