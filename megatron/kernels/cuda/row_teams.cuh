// Rows that are read once and normalised: a team of threads for each row, and the rows to come on their way through
// shared memory. Each thread copies the packs that it will use itself, so no barrier stands between memory and use.
#pragma once

#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {

/// A block is (x, y): y teams of x threads, x being a multiple of 32. Thread x of a team has packs x, x + X, ... of the
/// row, `packs` at most. Team y of block i has rows i Y + y, and each (number of blocks) Y after it.
struct RowTeams {
  static constexpr unsigned kMostThreads = 512, kMostBlockThreads = 1024;  // of a team and of a block
  static constexpr unsigned kMostTeams = 15;  // that wait for their own: a barrier for each, and one for the block
  unsigned x = kWarp, y = 1;
  int packs = 1;  // 1, 2, 4 or 8

  /// Few packs for each of at most `wanted_threads` threads. Where two are not enough, any number of threads will do.
  RowTeams(const char* kernel, int64_t columns, unsigned wanted_threads) {
    const int64_t row_packs = (columns + kPack - 1) / kPack;
    while (packs < 8 && row_packs > int64_t{packs} * (packs < 4 ? wanted_threads : kMostThreads)) packs *= 2;
    require<NotSupported>(row_packs <= packs * int64_t{kMostThreads}, "[{}] rows of {} elements: at most {} on CUDA.",
                          kernel, columns, packs * int64_t{kMostThreads} * kPack);
    const int64_t threads = (row_packs + packs - 1) / packs;
    x = static_cast<unsigned>(std::max<int64_t>(1, (threads + kWarp - 1) / kWarp) * kWarp);
  }
  /// As many teams as `block_threads` threads are, at least one.
  RowTeams& fill_block(unsigned block_threads) {
    y = std::max(1u, block_threads / x);
    if (x > kWarp) y = std::min(y, kMostTeams);
    return *this;
  }
  dim3 threads() const { return dim3(x, y); }
  int64_t blocks(int64_t rows) const { return (rows + y - 1) / y; }
};

/// The sums of `values` over the threads of a team; all of them get the same bits. `turn` alternates from call to call
/// between 0 and 1. Threads of other teams take no part.
template <int kNum>
__device__ void reduce_team(float (&values)[kNum], int turn) {
  __shared__ float warps[2][kNum][RowTeams::kMostBlockThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kNum; ++i) values[i] += __shfl_xor_sync(~0u, values[i], offset);
  if (blockDim.x == kWarp) return;
  const int num_warps = static_cast<int>(blockDim.x / kWarp), first = static_cast<int>(threadIdx.y) * num_warps;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (lane == 0)
#pragma unroll
    for (int i = 0; i < kNum; ++i) warps[turn][i][first + static_cast<int>(threadIdx.x / kWarp)] = values[i];
  asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
  const int width = num_warps == 1 ? 1 : 2 << (31 - __clz(num_warps - 1)), source = lane % width;
#pragma unroll
  for (int i = 0; i < kNum; ++i) values[i] = source < num_warps ? warps[turn][i][first + source] : 0;
  for (int offset = width / 2; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kNum; ++i) values[i] += __shfl_xor_sync(~0u, values[i], offset);
}

/// Room in shared memory for the packs of several rows to come. A plane holds 16 bytes of each thread of the block; a
/// pack of fp32 takes two.
struct PackRing {
  int stages = 0;  // rows ahead; 0: packs are read where they are used
  int planes = 0;  // of one stage

  static constexpr int kMostStages = 8;
  static constexpr int64_t kProcessorBytes = 228 << 10, kBlockOverhead = 1 << 10;

  static int planes_of(const Operand& x, int packs) { return x ? packs * (x.dtype == DType::kFloat32 ? 2 : 1) : 0; }
  /// For `planes` planes of blocks of `threads` threads, of which `most_blocks` or fewer share a processor.
  PackRing(int num_planes, unsigned threads, int64_t most_blocks) : planes(num_planes) {
    for (int64_t blocks = most_blocks; blocks > 0 && stages < 2; blocks /= 2) {
      const int64_t room = kProcessorBytes / blocks - kBlockOverhead - 1024;
      stages = static_cast<int>(std::min<int64_t>(kMostStages, room / (int64_t{16} * planes * threads)));
    }
  }
  int64_t bytes(unsigned threads) const { return int64_t{16} * stages * planes * threads; }
};

/// One thread's side of a ring. Slots are counted in planes.
class PackQueue {
 public:
  __device__ PackQueue(const PackRing& ring, uint4* shared)
      : ring_(ring),
        num_threads_(static_cast<int>(blockDim.x * blockDim.y)),
        own_(shared + threadIdx.y * blockDim.x + threadIdx.x) {}

  /// Starts to copy elements [i, i + n) to a slot of the oldest stage, which has been used up.
  template <class X>
  __device__ void put(const X& x, int64_t i, int n, int plane) {
    if (ring_.stages == 0 || !is_ahead(x, n)) return;
    uint4* slot = slot_of(plane);
    const bool is_wide = x.dtype == DType::kFloat32;
    const char* address = x.data + i * (is_wide ? 4 : 2);
    copy(slot, address);
    if (is_wide) copy(slot + num_threads_, address + 16);
  }
  /// Ends the stage that `put` filled and goes on to the next.
  __device__ void advance() {
    if (ring_.stages == 0) return;
    asm volatile("cp.async.commit_group;" ::: "memory");
    stage_ = stage_ + 1 == ring_.stages ? 0 : stage_ + 1;
  }
  /// Until the oldest stage is there.
  __device__ void wait() const {
    switch (ring_.stages) {
      case 0:
        return;
      case 1:
        return wait_but<0>();
      case 2:
        return wait_but<1>();
      case 3:
        return wait_but<2>();
      case 4:
        return wait_but<3>();
      case 5:
        return wait_but<4>();
      case 6:
        return wait_but<5>();
      case 7:
        return wait_but<6>();
      default:
        return wait_but<7>();
    }
  }
  /// What was put there, or the elements themselves where they cannot be copied ahead.
  template <class X>
  __device__ RawPack get(const X& x, int64_t i, int n, int plane) const {
    if (ring_.stages == 0 || !is_ahead(x, n)) return load_raw(x, i, n);
    const uint4* slot = slot_of(plane);
    RawPack raw;
    raw.low = slot[0];
    if (x.dtype == DType::kFloat32) raw.high = slot[num_threads_];
    raw.dtype = x.dtype;
    return raw;
  }

 private:
  template <class X>
  __device__ static bool is_ahead(const X& x, int n) {
    return kIsWhole<X> || (x.is_vectorised && n == kPack);
  }
  __device__ uint4* slot_of(int plane) const { return own_ + (stage_ * ring_.planes + plane) * num_threads_; }
  __device__ static void copy(uint4* slot, const char* address) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(slot))),
        "l"(address)
        : "memory");
  }
  template <int kPending>
  __device__ static void wait_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  }
  const PackRing& ring_;
  int num_threads_, stage_ = 0;
  uint4* own_;
};

/// Place of pack number k of a thread.
__device__ inline int64_t begin_of(int k) { return (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * kPack; }

/// Calls run(constant) with the number of packs as a compile-time constant.
template <class Run>
void with_packs(int packs, const Run& run) {
  switch (packs) {
    case 1:
      return run(std::integral_constant<int, 1>());
    case 2:
      return run(std::integral_constant<int, 2>());
    case 4:
      return run(std::integral_constant<int, 4>());
    default:
      return run(std::integral_constant<int, 8>());
  }
}

/// Lets a kernel have `bytes` of shared memory at the launch.
template <class Kernel>
void allow_shared_memory(const char* name, Kernel* kernel, int64_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  require<DeviceError>(error == cudaSuccess, "[{}] {} bytes of shared memory: {}.", name, bytes,
                       cudaGetErrorString(error));
}

}  // namespace megatron::kernels
