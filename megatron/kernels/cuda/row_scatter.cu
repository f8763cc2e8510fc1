#include "megatron/kernels/cuda/row_scatter.cuh"

namespace megatron::kernels {
namespace {

// Bitonic sort (Batcher 1968) with all comparisons upwards: the first step of each merge compares with the mirror
// image. Then elements past the end need no room, as they would be the largest and never move.
constexpr int kSortThreads = 1024, kChunk = 4096;

/// Partner pair number `i` of a step: width is the length of the runs that the step deals with.
__device__ void compare(unsigned long long* moves, int64_t count, int64_t i, int64_t width, bool is_mirror) {
  const int64_t half = width / 2, run = i / half * width, place = i % half;
  const int64_t low = run + place, high = is_mirror ? run + width - 1 - place : low + half;
  if (high >= count) return;
  const unsigned long long a = moves[low], b = moves[high];
  if (a > b) moves[low] = b, moves[high] = a;
}

/// Steps within chunks, in shared memory: all merges up to a chunk, or the rest of one merge of longer runs.
__global__ void __launch_bounds__(kSortThreads) sort_chunks(unsigned long long* moves, int64_t count, bool from_start) {
  __shared__ unsigned long long chunk[kChunk];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk, size = min(count - first, int64_t{kChunk});
  for (int i = threadIdx.x; i < size; i += kSortThreads) chunk[i] = moves[first + i];
  for (int merge = from_start ? 2 : kChunk; merge <= kChunk; merge *= 2) {
    for (int width = merge; width > 1; width /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < kChunk / 2; i += kSortThreads)
        compare(chunk, size, i, width, from_start && width == merge);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += kSortThreads) moves[first + i] = chunk[i];
}

__global__ void __launch_bounds__(kSortThreads)
    sort_step(unsigned long long* moves, int64_t count, int64_t num_pairs, int64_t width, bool is_mirror) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (i < num_pairs) compare(moves, count, i, width, is_mirror);
}

/// Row = place in the list. The first move of a target does the work for all of them.
struct AddRows {
  const unsigned long long* moves;
  int64_t count;
  Operand x, out;
  bool accumulate;

  __device__ void operator()(int64_t place, int64_t begin, int n) const {
    constexpr int kAhead = 4;  // rows that are loaded before the first is added
    const unsigned long long move = moves[place], target = move >> 32;
    if (move == kNoMove || (place > 0 && moves[place - 1] >> 32 == target)) return;
    const int64_t row = static_cast<int64_t>(target);
    Pack sum = accumulate ? load(out, row, begin, n) : Pack{};
    for (bool is_end = false; !is_end; place += kAhead) {
      RawPack raw[kAhead];
      int num = 0;
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const unsigned long long next = place + ahead < count ? moves[place + ahead] : kNoMove;
        if (next == kNoMove || next >> 32 != target) continue;
        raw[ahead] = load_raw(x, static_cast<int64_t>(next & 0xFFFFFFFFu), begin, n);
        num = ahead + 1;
      }
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        if (ahead >= num) continue;
        const Pack addend = convert(raw[ahead]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) sum.v[e] += addend.v[e];
      }
      is_end = num < kAhead;
    }
    store(out, row, begin, n, sum);
  }
};

}  // namespace

void sort_moves(const CudaStream& stream, unsigned long long* moves, int64_t count) {
  if (count <= 1) return;
  const auto chunks = static_cast<unsigned>((count + kChunk - 1) / kChunk);
  const auto within_chunks = [&](bool from_start) {
    sort_chunks<<<chunks, kSortThreads, 0, stream.stream>>>(moves, count, from_start);
  };
  within_chunks(true);
  for (int64_t merge = 2 * int64_t{kChunk}; merge < 2 * count; merge *= 2) {
    for (int64_t width = merge; width > kChunk; width /= 2) {
      const int64_t num_pairs = (count + width - 1) / width * (width / 2);
      sort_step<<<static_cast<unsigned>((num_pairs + kSortThreads - 1) / kSortThreads), kSortThreads, 0,
                  stream.stream>>>(moves, count, num_pairs, width, width == merge);
    }
    within_chunks(false);
  }
  check_launch("sort_moves");
}

void add_moved_rows(const CudaStream& stream, const unsigned long long* moves, int64_t count, const ConstView& x,
                    const View& out, bool accumulate) {
  Extent extent(out);
  extent.rows = count;
  extent.count = nullptr;
  for_each_pack(stream, "add_moved_rows", extent, AddRows{moves, count, Operand(x), Operand(out), accumulate});
}

}  // namespace megatron::kernels
