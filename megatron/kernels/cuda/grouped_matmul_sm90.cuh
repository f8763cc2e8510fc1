// The kernel of grouped_matmul_sm90.h. Persistent blocks, one for each multiprocessor, take tiles of 128 x 256 elements
// of all groups in turn. One thread copies operands to shared memory (TMA), up to four steps of 64 terms ahead; two
// warpgroups compute half a tile each (wgmma), and hand it over to be stored, or added to a gradient, while they
// compute the next tile. Tiles read whole boxes of rows, also those of the next group, and store only rows of their
// own.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "megatron/core/row_groups_view.h"
#include "megatron/kernels/cuda/wgmma.cuh"

namespace megatron::kernels::sm90 {

inline constexpr int kM = 128, kN = 256, kK = 64, kStages = 4, kWarpgroup = 128, kThreads = 3 * kWarpgroup;
inline constexpr int kBoxBytes = kK * 128;  // 64 rows of 128 bytes
inline constexpr int kABytes = kM * kK * 2, kBBytes = kN * kK * 2, kStageBytes = kABytes + kBBytes;
inline constexpr int kAtomBytes = 1024;                 // boxes begin at multiples of it
inline constexpr int kOutputBytes = 2 * 2 * kBoxBytes;  // two boxes for each warpgroup
inline constexpr int kSharedBytes = kStages * kStageBytes + kOutputBytes + kAtomBytes;

/// c[r] = a[r] b[g], c[r] = a[r] b[g]^T, and c[g] = a[rows]^T b[rows].
enum class Product { kRows, kRowsByTransposed, kWeightGradient };

struct Sizes {
  RowGroupsView groups;
  int64_t m = 0;  // rows of each weight gradient
  int64_t n = 0;
  int64_t k = 0;  // terms, where the groups do not say it
};

struct Form {
  bool accumulate = false;
  bool stores_boxes = false;  // of c, by its tensor map
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The tiles of one block, in ascending order: every thread goes through them by itself.
template <Product kProduct>
class TileWalk {
 public:
  __device__ explicit TileWalk(const Sizes& sizes) : sizes_(sizes), tile_(blockIdx.x), n_tiles_(ceiling(sizes.n, kN)) {
    enter_group();
  }
  /// False after the last tile.
  __device__ bool find() {
    while (group_ < sizes_.groups.num_groups && tile_ >= group_tiles_) {
      tile_ -= group_tiles_;
      ++group_;
      enter_group();
    }
    if (group_ >= sizes_.groups.num_groups) return false;
    const int strip = tile_ / (kStripTiles * n_tiles_), in_strip = tile_ % (kStripTiles * n_tiles_);
    const int left = m_tiles_ - strip * kStripTiles, height = left < kStripTiles ? left : kStripTiles;
    row_ = (strip * kStripTiles + in_strip % height) * kM;
    column_ = in_strip / height * kN;
    return true;
  }
  __device__ void next() { tile_ += gridDim.x; }

  __device__ int group() const { return group_; }
  __device__ int begin() const { return begin_; }
  __device__ int num_rows() const { return num_rows_; }
  __device__ int row() const { return row_; }
  __device__ int column() const { return column_; }
  __device__ int num_steps() const { return ceiling(kProduct == Product::kWeightGradient ? num_rows_ : sizes_.k, kK); }

 private:
  /// Tiles of a weight gradient go by strips of so many rows of tiles, down the columns of each strip: blocks that run
  /// at one time then read about as many columns of a as of b. Those of rows go down all rows of a group.
  static constexpr int kStripTiles = kProduct == Product::kWeightGradient ? 16 : 1 << 16;

  __device__ static int ceiling(int64_t size, int tile) { return static_cast<int>((size + tile - 1) / tile); }
  __device__ void enter_group() {
    if (group_ >= sizes_.groups.num_groups) return;
    begin_ = static_cast<int>(sizes_.groups.begin(group_));
    num_rows_ = static_cast<int>(sizes_.groups.end(group_)) - begin_;
    m_tiles_ = ceiling(kProduct == Product::kWeightGradient ? sizes_.m : num_rows_, kM);
    group_tiles_ = m_tiles_ * n_tiles_;
  }

  const Sizes& sizes_;
  int tile_, n_tiles_, group_ = 0, begin_ = 0, num_rows_ = 0, m_tiles_ = 0, group_tiles_ = 0;
  int row_ = 0, column_ = 0;
};

/// Stages of shared memory in the order in which they are filled and emptied.
struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

struct Barriers {
  SharedBarrier full[kStages], empty[kStages];
};

template <Product kProduct>
__device__ void fill_stages(const CUtensorMap& a, const CUtensorMap& b, const Sizes& sizes, char* stages,
                            Barriers& barriers) {
  StageCursor cursor{.parity = 1};
  for (TileWalk<kProduct> walk(sizes); walk.find(); walk.next())
    for (int step = 0; step < walk.num_steps(); ++step, cursor.next()) {
      SharedBarrier& full = barriers.full[cursor.stage];
      barriers.empty[cursor.stage].wait(cursor.parity);
      full.arrive_and_expect(kStageBytes);
      char* to_a = stages + cursor.stage * kStageBytes;
      char* to_b = to_a + kABytes;
      if constexpr (kProduct == Product::kWeightGradient) {
        const int row = walk.begin() + step * kK;
        for (int i = 0; i < kM / 64; ++i) copy_box(to_a + i * kBoxBytes, a, full, walk.row() + 64 * i, row);
        for (int i = 0; i < kN / 64; ++i) copy_box(to_b + i * kBoxBytes, b, full, walk.column() + 64 * i, row);
      } else {
        copy_box(to_a, a, full, step * kK, walk.begin() + walk.row());
        if constexpr (kProduct == Product::kRowsByTransposed)
          copy_box(to_b, b, full, step * kK, walk.column(), walk.group());
        else
          for (int i = 0; i < kN / 64; ++i)
            copy_box(to_b + i * kBoxBytes, b, full, walk.column() + 64 * i, step * kK, walk.group());
      }
    }
}

/// Both warpgroups of the computation, and no other warp.
__device__ inline void sync_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(2 * kWarpgroup) : "memory"); }

/// Zeroes the rows from `first` on of all boxes of a stage, which are rows of another group: they may even be NaN.
__device__ inline void zero_rows(char* stage, int first) {
  constexpr int kPieces = 128 / 16;  // of a row, of 16 bytes
  for (int i = static_cast<int>(threadIdx.x) - kWarpgroup; i < kStageBytes / 16; i += 2 * kWarpgroup)
    if (i / kPieces % kK >= first) reinterpret_cast<uint4*>(stage)[i] = uint4{};
  fence_shared_writes();
  sync_consumers();
}

template <Product kProduct, class T>
__device__ void multiply_step(float (&sums)[128], const char* stage, int half, bool accumulate) {
  constexpr bool kIsGradient = kProduct == Product::kWeightGradient;
  constexpr int kTransposeA = kIsGradient, kTransposeB = kProduct != Product::kRowsByTransposed;
  constexpr int kTerms = 16;
  const char* a = stage + half * kBoxBytes;  // 64 rows of 128 bytes in either order
  const char* b = stage + kABytes;
#pragma unroll
  for (int i = 0; i < kK / kTerms; ++i) {
    const int along_rows = i * kTerms * 128, along_row = i * kTerms * 2;
    wgmma_64_256_16<T, kTransposeA, kTransposeB>(
        sums, wgmma_operand(a + (kTransposeA ? along_rows : along_row), kAtomBytes, kBoxBytes),
        wgmma_operand(b + (kTransposeB ? along_rows : along_row), kAtomBytes, kBoxBytes), accumulate || i > 0);
  }
}

__device__ inline void put_pair(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = {x, y}; }
__device__ inline void put_pair(__nv_bfloat16* to, float x, float y) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}
__device__ inline void put_pair(__half* to, float x, float y) {
  *reinterpret_cast<__half2*>(to) = __floats2half2_rn(x, y);
}

/// Boxes of 64 rows of 128 bytes on their way from a warpgroup to memory, two of them in turn. Elements are rounded in
/// the box, those of gradients where they are added.
template <Product kProduct, class C>
class OutputBoxes {
  using Staged = std::conditional_t<kProduct == Product::kWeightGradient, float, C>;
  static constexpr int kColumns = 128 / sizeof(Staged);

 public:
  __device__ explicit OutputBoxes(char* boxes) : boxes_(boxes + half() * 2 * kBoxBytes) {}
  __device__ ~OutputBoxes() {
    if (thread() == 0) wait_for_box_reads<0>();
  }

  /// Stores or adds the warpgroup's 64 rows, of which so many rows and columns are of c.
  /// @param c     their first element
  /// @param x, y  its coordinates in the tensor map, in matrix `group` for a gradient
  __device__ void store(const float (&sums)[128], const CUtensorMap& c_map, C* c, int64_t stride, int rows,
                        int64_t columns, int x, int y, int group, const Form& form) {
    const bool stores_box = form.stores_boxes && (rows >= 64 || kProduct == Product::kWeightGradient);
#pragma unroll
    for (int first = 0; first < kN; first += kColumns) {
      if (first >= columns) break;
      char* box = boxes_ + box_ * kBoxBytes;
      box_ ^= 1;
      if (thread() == 0) wait_for_box_reads<1>();
      sync();
      fill(sums, first, box);
      fence_shared_writes();
      sync();
      if (!stores_box)
        store_elements(box, c + first, stride, rows, columns - first, form.accumulate);
      else if (thread() == 0)
        issue(c_map, box, x + first, y, group, form.accumulate);
    }
  }

 private:
  __device__ static int half() { return static_cast<int>(threadIdx.x) / kWarpgroup - 1; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWarpgroup; }
  __device__ static void sync() {
    if (half() == 0)
      asm volatile("bar.sync 2, %0;" ::"n"(kWarpgroup) : "memory");
    else
      asm volatile("bar.sync 3, %0;" ::"n"(kWarpgroup) : "memory");
  }
  /// Pieces of 16 bytes are swizzled by the row, as in all boxes.
  __device__ static int place(int row, int column) {
    const int offset = column * static_cast<int>(sizeof(Staged));
    return row * 128 + ((offset / 16) ^ (row % 8)) * 16 + offset % 16;
  }
  /// Threads hold the sums in the order that wgmma_64_256_16 describes.
  __device__ static void fill(const float (&sums)[128], int first, char* box) {
    const int row = thread() / 32 * 16 + thread() % 32 / 4, column = thread() % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int at = 4 * (first / 8 + j) + 2 * lower;
        put_pair(reinterpret_cast<Staged*>(box + place(row + 8 * lower, 8 * j + column)), sums[at], sums[at + 1]);
      }
  }
  __device__ static void issue(const CUtensorMap& c_map, const char* box, int x, int y, int group, bool accumulate) {
    if constexpr (kProduct != Product::kWeightGradient)
      store_box(c_map, box, x, y);
    else if (accumulate)
      add_box(c_map, box, x, y, group);
    else
      store_box(c_map, box, x, y, group);
    commit_boxes();
  }
  /// Stores the elements one by one where TMA cannot: the group ends within the box, the matrix is not aligned, or the
  /// sum is rounded to half precision.
  __device__ static void store_elements(const char* box, C* c, int64_t stride, int rows, int64_t columns,
                                        bool accumulate) {
    for (int i = thread(); i < 64 * kColumns; i += kWarpgroup) {
      const int row = i / kColumns, column = i % kColumns;
      if (row >= rows || column >= columns) continue;
      C& to = c[row * stride + column];
      const auto value = static_cast<float>(*reinterpret_cast<const Staged*>(box + place(row, column)));
      to = static_cast<C>(accumulate ? static_cast<float>(to) + value : value);
    }
  }

  char* boxes_;
  int box_ = 0;
};

template <Product kProduct, class T, class C>
__device__ void compute_tiles(const CUtensorMap& c_map, C* c, const Sizes& sizes, const Form& form, char* stages,
                              Barriers& barriers) {
  constexpr bool kIsGradient = kProduct == Product::kWeightGradient;
  const int half = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const bool is_first_thread = threadIdx.x % kWarpgroup == 0;
  OutputBoxes<kProduct, C> output(stages + kStages * kStageBytes);
  StageCursor cursor;
  for (TileWalk<kProduct> walk(sizes); walk.find(); walk.next()) {
    float sums[128];
    if (walk.num_steps() == 0)
      for (float& sum : sums) sum = 0;
    int previous = 0;
    for (int step = 0; step < walk.num_steps(); ++step, cursor.next()) {
      barriers.full[cursor.stage].wait(cursor.parity);
      char* stage = stages + cursor.stage * kStageBytes;
      if (kIsGradient && walk.num_rows() - step * kK < kK) zero_rows(stage, walk.num_rows() - step * kK);
      wgmma_fence();
      multiply_step<kProduct, T>(sums, stage, half, step > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (step > 0 && is_first_thread) barriers.empty[previous].arrive();
      previous = cursor.stage;
    }
    wgmma_wait<0>();
    if (walk.num_steps() > 0 && is_first_thread) barriers.empty[previous].arrive();
    const int row = walk.row() + half * 64;
    const int64_t rows = (kIsGradient ? sizes.m : walk.num_rows()) - row, columns = sizes.n - walk.column();
    if (rows <= 0) continue;
    const int64_t first = kIsGradient ? walk.group() * sizes.m + row : walk.begin() + row;
    output.store(sums, c_map, c + first * sizes.n + walk.column(), sizes.n, static_cast<int>(rows < 64 ? rows : 64),
                 columns, walk.column(), (kIsGradient ? 0 : walk.begin()) + row, walk.group(), form);
  }
}

#endif

/// A build for 9.0a shows in the static shared memory of the barriers (Sm90Kernels::runs).
template <Product kProduct, class T, class C>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                   const __grid_constant__ CUtensorMap c_map, C* c, const __grid_constant__ Sizes sizes, Form form) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char shared[];
  __shared__ Barriers barriers;
  char* stages = shared + (kAtomBytes - shared_address(shared) % kAtomBytes) % kAtomBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barriers.full[i].init(1);
      barriers.empty[i].init(2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_registers<40>();
    if (threadIdx.x == 0) fill_stages<kProduct>(a, b, sizes, stages, barriers);
  } else {
    take_registers<232>();
    compute_tiles<kProduct, T>(c_map, c, sizes, form, stages, barriers);
  }
#endif
}

}  // namespace megatron::kernels::sm90
