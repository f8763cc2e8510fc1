// Times attention on CUDA: cuDNN's, also deterministic, and the built-in kernels; and the parts of a ring.
//
//   cuda_attention [RESULTS.json [WORDS]]     WORDS: only cases whose names contain them, such as "ring"
#include <cmath>

#include "benchmarks/cuda_bench.h"
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/this_gpu.h"

namespace megatron::kernels {
namespace {

struct AttentionShape {
  const char* name;
  int64_t s, b, n, g, d;
};

/// TFLOP/s count two matmuls forward and five backward over the s (s + 1) / 2 pairs that causal attention computes,
/// taken as s^2 / 2.
void bench_attention_shape(Bench& bench, const AttentionShape& z) {
  const CudaStream& s = bench.stream();
  const Shape q_shape{z.s, z.b, z.n, z.d}, k_shape{z.s, z.b, z.g, z.d};
  const Buffer q(s, kBf16, q_shape), k(s, kBf16, k_shape), v(s, kBf16, k_shape), o(s, kBf16, q_shape);
  const Buffer grad_o(s, kBf16, q_shape), grad_q(s, kBf16, q_shape), grad_k(s, kBf16, k_shape);
  const Buffer grad_v(s, kBf16, k_shape), lse(s, kF32, {z.n, z.b, z.s});
  std::vector<SequenceSpan> table;
  for (int32_t column = 0; column < z.b; ++column)
    table.push_back(
        {.batch = column, .query_length = static_cast<int32_t>(z.s), .key_length = static_cast<int32_t>(z.s)});
  Buffer spans(s, DType::kUInt8, {static_cast<int64_t>(table.size() * sizeof(SequenceSpan))});
  spans.write(table);
  AttentionForwardArgs forward{.q = q, .k = k, .v = v, .o = o, .lse = lse};
  forward.layout = {.s = z.s, .b = z.b, .spans = spans.data<SequenceSpan>(), .num_spans = z.b};
  forward.layout.form = SpanForm::kUniform;
  forward.options = {.scale = 1 / std::sqrt(static_cast<double>(z.d)), .is_deterministic = false};
  AttentionBackwardArgs backward{.q = q, .k = k, .v = v, .o = o, .lse = lse, .grad_o = grad_o};
  backward.layout = forward.layout;
  backward.options = forward.options;
  backward.grad_q = grad_q, backward.grad_k = grad_k, backward.grad_v = grad_v;
  AttentionBackwardArgs deterministic = backward;
  deterministic.options.is_deterministic = true;
  const int64_t bytes =
      std::max({attention_forward_workspace_bytes(s, forward), attention_backward_workspace_bytes(s, backward),
                attention_backward_workspace_bytes(s, deterministic)});
  const Buffer workspace(s, DType::kUInt8, {std::max<int64_t>(1, bytes)});
  forward.workspace = backward.workspace = deterministic.workspace = workspace;
  const double operations = 2.0 * static_cast<double>(z.s * z.s) * static_cast<double>(z.b * z.n * z.d);
  const auto name = [&](const char* what) { return fmt::format("attention {} {}", z.name, what); };
  bench.arithmetic(name("forward"), operations, [&] { attention_forward(s, forward); });
  bench.arithmetic(name("backward"), 2.5 * operations, [&] { attention_backward(s, backward); });
  bench.arithmetic(name("backward, deterministic"), 2.5 * operations, [&] { attention_backward(s, deterministic); });
  const Buffer state(s, DType::kUInt8, {static_cast<int64_t>(sizeof(StepState))});
  AttentionForwardArgs dropped_forward = forward;
  AttentionBackwardArgs dropped_backward = backward;
  dropped_forward.options.dropout = dropped_backward.options.dropout = 0.1;
  dropped_forward.options.state = dropped_backward.options.state = state.data<StepState>();
  bench.arithmetic(name("forward, dropout"), operations, [&] { attention_forward(s, dropped_forward); });
  bench.arithmetic(name("backward, dropout"), 2.5 * operations, [&] { attention_backward(s, dropped_backward); });
  bench.arithmetic(name("forward, own"), operations,
                   [&] { tiled_attention_forward(s, forward, block_shared_bytes()); });
  bench.arithmetic(name("backward, own"), 2.5 * operations,
                   [&] { tiled_attention_backward(s, backward, block_shared_bytes()); });
}

/// The parts of a sequence of 2 s tokens that one of two ranks computes, as context_parallel/ring_attention.h has it:
/// its own keys under a causal mask, half of the other rank's keys for all queries, or all of them for half of its
/// queries. TFLOP/s count the pairs that are visible.
void bench_ring_part(Bench& bench, const char* part, const AttentionShape& z, const SequenceSpan& span, SpanForm form) {
  const CudaStream& s = bench.stream();
  const Shape q_shape{z.s, z.b, z.n, z.d}, k_shape{z.s, z.b, z.g, z.d};
  const Buffer q(s, kBf16, q_shape), k(s, kBf16, k_shape), v(s, kBf16, k_shape), o(s, kBf16, q_shape);
  const Buffer grad_o(s, kBf16, q_shape), grad_q(s, kBf16, q_shape), grad_k(s, kBf16, k_shape);
  const Buffer grad_v(s, kBf16, k_shape), lse(s, kF32, {z.n, z.b, z.s});
  Buffer spans(s, DType::kUInt8, {static_cast<int64_t>(sizeof(SequenceSpan))});
  spans.write(std::vector{span});
  AttentionForwardArgs forward{.q = q, .k = k, .v = v, .o = o, .lse = lse};
  forward.layout = {.s = z.s, .b = z.b, .spans = spans.data<SequenceSpan>(), .num_spans = 1, .form = form};
  forward.options = {.scale = 1 / std::sqrt(static_cast<double>(z.d)), .is_deterministic = false};
  AttentionBackwardArgs backward{.q = q, .k = k, .v = v, .o = o, .lse = lse, .grad_o = grad_o};
  backward.layout = forward.layout;
  backward.options = forward.options;
  backward.grad_q = grad_q, backward.grad_k = grad_k, backward.grad_v = grad_v;
  const int64_t bytes =
      std::max(attention_forward_workspace_bytes(s, forward), attention_backward_workspace_bytes(s, backward));
  const Buffer workspace(s, DType::kUInt8, {bytes});
  forward.workspace = backward.workspace = workspace;
  const double visible = span.query_offset == 0 ? 0.5 : 1;
  const double pairs = visible * static_cast<double>(span.query_length) * static_cast<double>(span.key_length);
  const double operations = 4 * pairs * static_cast<double>(z.n * z.d);
  const auto name = [&](const char* what) { return fmt::format("ring {}, {} {}", z.name, part, what); };
  bench.arithmetic(name("forward"), operations, [&] { attention_forward(s, forward); });
  bench.arithmetic(name("backward"), 2.5 * operations, [&] { attention_backward(s, backward); });
}

void bench_ring(Bench& bench) {
  for (const AttentionShape& z : {AttentionShape{"8B s16384 of 32768", 16384, 1, 32, 8, 128},
                                  AttentionShape{"8B s32768 of 65536", 32768, 1, 32, 8, 128}}) {
    const auto all = static_cast<int32_t>(z.s), half = all / 2;
    bench_ring_part(bench, "causal", z, {.query_length = all, .key_length = all}, SpanForm::kUniform);
    bench_ring_part(bench, "half of the keys", z, {.query_length = all, .key_length = half, .query_offset = all},
                    SpanForm::kAllVisible);
    bench_ring_part(bench, "half of the queries", z,
                    {.query_begin = half, .query_length = half, .key_length = all, .query_offset = all},
                    SpanForm::kAllVisible);
    bench_ring_part(bench, "gathered keys", z,
                    {.query_begin = half, .query_length = half, .key_length = all, .query_offset = half},
                    SpanForm::kEndsAligned);
  }
}

void bench_attention(Bench& bench) {
  fmt::print("attention: {}\n", attention_library());
  for (const AttentionShape& shape : {AttentionShape{"8B s4096", 4096, 1, 32, 8, 128},
                                      {"8B s8192", 8192, 1, 32, 8, 128},
                                      {"GPT-2 124M b8", 1024, 8, 12, 12, 64},
                                      {"GPT-2 124M b32", 1024, 32, 12, 12, 64}})
    bench_attention_shape(bench, shape);
}

}  // namespace
}  // namespace megatron::kernels

int main(int argc, char** argv) {
  using namespace megatron::kernels;
  try {
    Bench bench(argc > 2 ? argv[2] : "");
    bench.measure_copy();
    bench_attention(bench);
    bench_ring(bench);
    if (argc > 1) bench.write(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
