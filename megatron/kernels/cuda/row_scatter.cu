#include "megatron/kernels/cuda/row_scatter.cuh"

namespace megatron::kernels {
namespace {

/// Each move computes its position: the number of moves before it in its own run and, by binary search, in all others.
/// No two moves are equal.
__global__ void __launch_bounds__(kBlockThreads) merge_runs_kernel(const Move* runs, int64_t count, Move* moves) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= count) return;
  const Move move = runs[i];
  int64_t place = i % kSortedRun;
  for (int64_t first = 0; first < count; first += kSortedRun) {
    if (first == i - i % kSortedRun) continue;
    int64_t low = first, high = min(first + kSortedRun, count);
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (runs[middle] < move)
        low = middle + 1;
      else
        high = middle;
    }
    place += low - first;
  }
  moves[place] = move;
}

/// Row = position in the list. The first move of a target does the work for all of them.
struct AddRows {
  const Move* moves;
  int64_t count;
  Operand x, out;
  bool accumulate;

  __device__ void operator()(int64_t place, int64_t begin, int n) const {
    constexpr int kAhead = 4;  // rows that are loaded before the first is added
    const Move move = moves[place], target = move >> 32;
    if (target == kNoTarget || (place > 0 && moves[place - 1] >> 32 == target)) return;
    const int64_t row = static_cast<int64_t>(target);
    RawPack old;
    if (accumulate) old = load_raw(out, row, begin, n);
    Pack sum = {};
    for (bool is_start = true, is_end = false; !is_end; place += kAhead, is_start = false) {
      Move next[kAhead];
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead)
        next[ahead] = place + ahead < count ? moves[place + ahead] : ~Move{0};
      RawPack raw[kAhead];
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead)
        if (next[ahead] >> 32 == target)
          raw[ahead] = load_raw(x, static_cast<int64_t>(next[ahead] & 0xFFFFFFFFu), begin, n);
      if (is_start && accumulate) sum = convert(old);
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        if (next[ahead] >> 32 != target) continue;
        const Pack addend = convert(raw[ahead]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) sum.v[e] += addend.v[e];
      }
      is_end = next[kAhead - 1] >> 32 != target;
    }
    store(out, row, begin, n, sum);
  }
};

}  // namespace

void merge_runs(const CudaStream& stream, const Move* runs, int64_t count, Move* moves) {
  merge_runs_kernel<<<static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0,
                      stream.stream>>>(runs, count, moves);
  check_launch("merge_runs");
}

void add_moved_rows(const CudaStream& stream, const Move* moves, int64_t count, const ConstView& x, const View& out,
                    bool accumulate) {
  Extent extent(out);
  extent.rows = count;
  extent.count = nullptr;
  for_each_pack(stream, "add_moved_rows", extent, AddRows{moves, count, Operand(x), Operand(out), accumulate});
}

}  // namespace megatron::kernels
