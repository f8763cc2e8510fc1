// Times the grouped matrix products of experts: the layers of known models, rows equal for all experts and skewed by
// Zipf's law with an eighth of the experts empty. Beside each kernel: one dense product of as many operations, and a
// loop of dense products over the experts, whose sizes the host then has to know.
//
//   cuda_grouped [RESULTS.json [PART OF A NAME]]
#include <cmath>
#include <numeric>

#include "benchmarks/cuda_bench.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/grouped_matmul.h"

namespace megatron::kernels {
namespace {

struct Experts {
  const char* name;
  int64_t hidden, ffn, num, rows;
};
constexpr Experts kModels[] = {{"8 of 5632, h2048", 2048, 5632, 8, 32768},
                               {"Mixtral", 4096, 14336, 8, 16384},
                               {"Qwen3-30B-A3B", 2048, 768, 128, 131072},
                               {"DeepSeek-like", 7168, 2048, 32, 32768}};

/// Ends of the groups after a 0.
std::vector<int32_t> group_offsets(const Experts& experts, bool is_skewed) {
  std::vector<double> shares(static_cast<size_t>(experts.num), 1.0);
  if (is_skewed)
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = i % 8 == 7 ? 0 : 1 / static_cast<double>(i + 1);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int32_t> offsets = {0};
  double until = 0;
  for (const double share : shares) {
    until += share;
    offsets.push_back(static_cast<int32_t>(std::llround(until / sum * static_cast<double>(experts.rows))));
  }
  return offsets;
}

View rows_of(const Buffer& x, int64_t begin, int64_t end) {
  View part = View(x);
  part.data = static_cast<char*>(part.data) + begin * part.strides[0] * size_of(part.dtype);
  part.shape[0] = end - begin;
  return part;
}
View matrix_of(const Buffer& x, int64_t group) {
  View part = View(x);
  part.data = static_cast<char*>(part.data) + group * part.strides[0] * size_of(part.dtype);
  part.shape = Shape{part.shape[1], part.shape[2]};
  part.strides = part.shape.contiguous_strides();
  return part;
}

/// A linear layer of all experts: y = x w^T.
void bench_layer(Bench& bench, const Experts& experts, const std::string& name, int64_t in, int64_t out,
                 bool is_skewed) {
  const CudaStream& s = bench.stream();
  const std::vector<int32_t> ends = group_offsets(experts, is_skewed);
  Buffer offsets(s, DType::kInt32, {experts.num + 1});
  offsets.write(ends);
  const Buffer x(s, kBf16, {experts.rows, in}), w(s, kBf16, {experts.num, out, in}), y(s, kBf16, {experts.rows, out});
  const Buffer dw(s, kF32, {experts.num, out, in}), workspace(s, DType::kUInt8, {int64_t{64} << 20});
  const RowGroupsView groups{offsets.data<int32_t>(), experts.num, experts.rows};
  const double operations = 2.0 * static_cast<double>(experts.rows * in) * static_cast<double>(out);
  bench.arithmetic(name + " forward", operations,
                   [&] { grouped_matmul(s, {.a = x, .b = w, .c = y, .groups = groups, .transpose_b = true}); });
  bench.arithmetic(name + " dgrad", operations, [&] { grouped_matmul(s, {.a = y, .b = w, .c = x, .groups = groups}); });
  bench.arithmetic(name + " wgrad", operations,
                   [&] { grouped_wgrad(s, {.a = y, .b = x, .c = dw, .groups = groups, .accumulate = true}); });
  const auto each = [&](auto&& product) {
    for (int64_t g = 0; g < experts.num; ++g) {
      const int64_t begin = ends[static_cast<size_t>(g)], end = ends[static_cast<size_t>(g) + 1];
      if (begin < end) product(rows_of(x, begin, end), rows_of(y, begin, end), matrix_of(w, g), matrix_of(dw, g));
    }
  };
  bench.arithmetic(name + " forward, loop", operations, [&] {
    each([&](auto xs, auto ys, auto ws, auto) {
      matmul(s, {.a = xs, .b = ws, .c = ys, .transpose_b = true, .workspace = workspace});
    });
  });
  bench.arithmetic(name + " dgrad, loop", operations, [&] {
    each([&](auto xs, auto ys, auto ws, auto) { matmul(s, {.a = ys, .b = ws, .c = xs, .workspace = workspace}); });
  });
  bench.arithmetic(name + " wgrad, loop", operations, [&] {
    each([&](auto xs, auto ys, auto, auto dws) {
      matmul(s, {.a = ys, .b = xs, .c = dws, .transpose_a = true, .accumulate = true, .workspace = workspace});
    });
  });
  bench.arithmetic(name + " forward, dense", operations, [&] {
    matmul(s, {.a = x, .b = matrix_of(w, 0), .c = y, .transpose_b = true, .workspace = workspace});
  });
}

}  // namespace
}  // namespace megatron::kernels

int main(int argc, char** argv) {
  using namespace megatron::kernels;
  try {
    Bench bench(argc > 2 ? argv[2] : "");
    bench.measure_copy();
    for (const Experts& experts : kModels)
      for (const bool is_skewed : {false, true}) {
        const std::string name = fmt::format("{}, {} rows", experts.name, is_skewed ? "skewed" : "equal");
        bench_layer(bench, experts, name + ", fc1", experts.hidden, 2 * experts.ffn, is_skewed);
        bench_layer(bench, experts, name + ", fc2", experts.ffn, experts.hidden, is_skewed);
      }
    if (argc > 1) bench.write(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
