// Times the CUDA kernels at the shapes of Llama-3-8B, sequences of 4096, and some at those of GPT-2. For each kernel:
// median time, bytes that it has to move at least, and what share of the bandwidth of a device-to-device copy that is;
// for matmuls TFLOP/s.
//
//   cuda_kernels [RESULTS.json [PART OF A NAME]]
#include "benchmarks/cuda_bench.h"
#include "megatron/kernels/activation.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/cross_entropy.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/dropout.h"
#include "megatron/kernels/embedding.h"
#include "megatron/kernels/gather_rows.h"
#include "megatron/kernels/gradient_statistics.h"
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"
#include "megatron/kernels/rope.h"

namespace megatron::kernels {
namespace {

constexpr int64_t kS = 4096, kB = 4, kT = kS * kB, kH = 4096, kF = 14336, kHeads = 32, kGroups = 8, kD = 128;
constexpr int64_t kVocabulary = 128256, kParameters = int64_t{1} << 27;

void bench_norm(Bench& bench, int64_t h, DType dtype) {
  const CudaStream& s = bench.stream();
  const Shape shape{kT, h};
  const Buffer x(s, dtype, shape), residual(s, dtype, shape), y(s, dtype, shape), z(s, dtype, shape);
  const Buffer gamma(s, dtype, {h}), beta(s, dtype, {h}), mean(s, kF32, {kT}), rstd(s, kF32, {kT});
  const Buffer dgamma(s, kF32, {h}), dbeta(s, kF32, {h});
  const Buffer workspace(s, DType::kUInt8, {layer_norm_backward_workspace_bytes(kT, h, dtype)});
  const double tensor = static_cast<double>(size_of(dtype) * shape.num_elements());
  const auto name = [&](const char* kernel) { return fmt::format("{} {} h {}", kernel, dtype, h); };
  for (bool with_residual : {false, true}) {
    const char* suffix = with_residual ? " + residual" : "";
    const View added = with_residual ? View(residual) : View{}, sum = with_residual ? View(z) : View{};
    const double bytes = (with_residual ? 4 : 2) * tensor;
    bench.bandwidth(name("rms_norm forward") + suffix, bytes, [&] {
      rms_norm_forward(s, {.x = x, .residual = added, .gamma = gamma, .residual_out = sum, .y = y, .rstd = rstd});
    });
    bench.bandwidth(name("layer_norm forward") + suffix, bytes, [&] {
      layer_norm_forward(s, {.x = x,
                             .residual = added,
                             .gamma = gamma,
                             .beta = beta,
                             .residual_out = sum,
                             .y = y,
                             .mean = mean,
                             .rstd = rstd});
    });
    bench.bandwidth(name("rms_norm backward") + suffix, (with_residual ? 4 : 3) * tensor, [&] {
      rms_norm_backward(s, {.x = x,
                            .gamma = gamma,
                            .rstd = rstd,
                            .dy = residual,
                            .dresidual = sum,
                            .dx = y,
                            .dgamma = dgamma,
                            .accumulate = true,
                            .workspace = workspace});
    });
    bench.bandwidth(name("layer_norm backward") + suffix, (with_residual ? 4 : 3) * tensor, [&] {
      layer_norm_backward(s, {.x = x,
                              .gamma = gamma,
                              .mean = mean,
                              .rstd = rstd,
                              .dy = residual,
                              .dresidual = sum,
                              .dx = y,
                              .dgamma = dgamma,
                              .dbeta = dbeta,
                              .accumulate = true,
                              .workspace = workspace});
    });
  }
}
void bench_norms(Bench& bench) {
  for (int64_t h : {128, 768, 896, 1536, 1600, 4096, 8192, 16384, 4095}) bench_norm(bench, h, kBf16);
  bench_norm(bench, kH, kF32);
}

void bench_mlp(Bench& bench) {
  const CudaStream& s = bench.stream();
  const Buffer fc1(s, kBf16, {kT, 2 * kF}), dfc1(s, kBf16, {kT, 2 * kF}), y(s, kBf16, {kT, kF});
  const double half = 2.0 * kT * kF;
  const View gate = fc1.columns(0, kF), up = fc1.columns(kF, kF);
  bench.bandwidth("swiglu forward", 3 * half, [&] { gated_activation_forward(s, {.gate = gate, .up = up, .y = y}); });
  bench.bandwidth("swiglu backward", 5 * half, [&] {
    gated_activation_backward(
        s, {.gate = gate, .up = up, .dy = y, .dgate = dfc1.columns(0, kF), .dup = dfc1.columns(kF, kF)});
  });
  const Buffer bias(s, kBf16, {kF}), dbias(s, kF32, {kF}), dx(s, kBf16, {kT, kF});
  const Buffer workspace(s, DType::kUInt8, {activation_backward_workspace_bytes(kT, kF, kBf16)});
  bench.bandwidth("gelu forward + bias", 2 * half,
                  [&] { activation_forward(s, {.x = y, .bias = bias, .y = dx, .activation = Activation::kGeluTanh}); });
  bench.bandwidth("gelu backward + bias gradient", 3 * half, [&] {
    activation_backward(s, {.x = y,
                            .bias = bias,
                            .dy = dx,
                            .dx = dx,
                            .dbias = dbias,
                            .workspace = workspace,
                            .activation = Activation::kGeluTanh});
  });
}

void bench_rows(Bench& bench) {
  const CudaStream& s = bench.stream();
  const Buffer x(s, kBf16, {kT, kH}), residual(s, kBf16, {kT, kH}), y(s, kBf16, {kT, kH}), sum(s, kF32, {kT, kH});
  const Buffer state(s, DType::kUInt8, {static_cast<int64_t>(sizeof(StepState))});
  const Buffer bias(s, kBf16, {kH}), dbias(s, kF32, {kH});
  const Buffer workspace(s, DType::kUInt8, {column_sum_workspace_bytes(kT, kH, kBf16)});
  const double tensor = 2.0 * kT * kH;
  const DropoutMask mask{
      .rate = 0.1, .key = {5}, .state = state.data<StepState>(), .rows = {.sequence_length = kS, .b = kB}};
  bench.bandwidth("bias_dropout_add forward", 3 * tensor, [&] {
    bias_dropout_add_forward(s, {.x = x, .bias = bias, .residual = residual, .y = y, .dropout = mask});
  });
  bench.bandwidth("bias_dropout_add backward", 2 * tensor, [&] {
    bias_dropout_add_backward(s, {.dy = x, .dx = y, .dbias = dbias, .workspace = workspace, .dropout = mask});
  });
  const Buffer frequencies(s, DType::kFloat64, {kD / 2}), cos(s, kF32, {kS, kD / 2}), sin(s, kF32, {kS, kD / 2});
  rope_table(s, {.frequencies = frequencies, .cos = cos, .sin = sin});
  for (RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved})
    bench.bandwidth(pairs == RopePairs::kHalves ? "rope" : "rope interleaved", 2 * tensor, [&] {
      rope(s, {.x = x.as({kS, kB, kHeads, kD}),
               .y = y.as({kS, kB, kHeads, kD}),
               .cos = cos,
               .sin = sin,
               .layout = {.s = kS, .b = kB},
               .pairs = pairs});
    });
  bench.bandwidth("accumulate bf16 into fp32", 5 * tensor, [&] { accumulate(s, {.x = x, .y = sum}); });
  bench.bandwidth("cast fp32 to bf16", 3 * tensor, [&] { copy(s, {.x = sum, .y = x}); });
  bench.bandwidth("fill", tensor, [&] { fill(s, {.y = y}); });
  for (int64_t f : {768, 3072, 4096, 14336}) {
    const int64_t rows = kT * kH / f;
    const Buffer out(s, kF32, {f}), parts(s, DType::kUInt8, {column_sum_workspace_bytes(rows, f, kBf16)});
    bench.bandwidth(fmt::format("column_sum f {}", f), 2.0 * static_cast<double>(rows * f), [&] {
      column_sum(s, {.x = x.as({rows, f}), .out = out, .workspace = parts});
    });
  }
}

void bench_indexed_rows(Bench& bench) {
  const CudaStream& s = bench.stream();
  const Buffer y(s, kBf16, {kT, kH}), z(s, kBf16, {kT, kH}), table(s, kBf16, {kVocabulary, kH});
  const Buffer dtable(s, kF32, {kVocabulary, kH}), moves(s, DType::kUInt8, {embedding_backward_workspace_bytes(kT)});
  const double tensor = 2.0 * kT * kH;
  Buffer ids(s, DType::kInt64, {kT}), index(s, DType::kInt32, {kT});
  std::vector<int64_t> words, repeated(static_cast<size_t>(kT), 7);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < kT; ++i) {
    words.push_back(static_cast<int64_t>(draw({3}, 0, 0, i)) % kVocabulary);
    places.push_back(static_cast<int32_t>(i * 4099 % kT));
  }
  ids.write(words);
  index.write(places);
  bench.bandwidth("embedding forward", 2 * tensor,
                  [&] { embedding_forward(s, {.index = {.ids = ids}, .table = table, .y = y}); });
  const auto backward = [&] {
    embedding_backward(s, {.index = {.ids = ids}, .dy = y, .dtable = dtable, .accumulate = true, .workspace = moves});
  };
  bench.bandwidth("embedding backward", 5 * tensor, backward);
  ids.write(repeated);
  bench.bandwidth("embedding backward, one token repeated", tensor, backward);
  bench.bandwidth("gather_rows", 2 * tensor, [&] { gather_rows(s, {.x = y, .index = index, .y = z}); });
  bench.bandwidth("scatter_add_rows", 3 * tensor,
                  [&] { scatter_add_rows(s, {.x = y, .index = index, .y = z, .workspace = moves}); });
}

void bench_logits(Bench& bench, DType dtype, int64_t rows, int64_t v) {
  const CudaStream& s = bench.stream();
  const Buffer logits(s, dtype, {rows, v}), max(s, kF32, {rows}), sum(s, kF32, {rows}), loss(s, kF32, {rows});
  const Buffer ids(s, DType::kInt64, {rows}), mask(s, kF32, {rows}), d_logits(s, dtype, {rows, v});
  fill(s, {.y = mask, .value = 1});
  fill(s, {.y = loss, .value = 1});
  const double bytes = static_cast<double>(size_of(dtype) * rows * v);
  const auto name = [&](const char* kernel) { return fmt::format("cross_entropy {} {} v {}", kernel, dtype, v); };
  const auto backward = [&](const View& out) {
    cross_entropy_backward(s, {.logits = logits,
                               .columns = {0, v},
                               .targets = ids,
                               .max = max,
                               .sum_exp = sum,
                               .loss_mask = mask,
                               .d_loss = mask,
                               .d_logits = out});
  };
  bench.bandwidth(name("forward"), bytes, [&] {
    cross_entropy_forward(s, {.logits = logits,
                              .columns = {0, v},
                              .targets = ids,
                              .loss_mask = mask,
                              .max = max,
                              .sum_exp = sum,
                              .loss = loss});
  });
  bench.bandwidth(name("backward"), 2 * bytes, [&] { backward(d_logits); });
  bench.bandwidth(name("backward in place"), 2 * bytes, [&] { backward(logits); });
}
void bench_loss(Bench& bench) {
  for (DType dtype : {kBf16, kF32})
    for (int64_t v : {int64_t{151936}, kVocabulary, int64_t{50304}, int64_t{50257}}) bench_logits(bench, dtype, kS, v);
}

/// Adam's storage of main parameters: fp32 beside the bf16 weight; the lower half of the main parameter; none.
struct AdamForm {
  const char* name;
  DType states, parameter;
  bool has_remainder, has_weight;
};
constexpr AdamForm kAdamForms[] = {{"18 bytes", kF32, kF32, false, true},
                                   {"10 bytes", kBf16, kF32, true, true},
                                   {"8 bytes", kBf16, kBf16, false, false}};
constexpr int64_t kRanges = 300;  // as many as Llama-3-8B has parameters

/// One range, and a table of many that are not equal.
void bench_adam(Bench& bench, const AdamForm& form) {
  const CudaStream& s = bench.stream();
  const int64_t n = kParameters / 2;
  const Buffer p(s, form.parameter, {form.has_remainder ? 1 : n}), weight(s, kBf16, {form.has_weight ? n : 1});
  const Buffer remainder(s, DType::kUInt8, {form.has_remainder ? n : 1, 2});
  const Buffer g(s, form.states, {n}), m(s, form.states, {n}), v(s, form.states, {n});
  fill(s, {.y = v, .value = 1});
  Buffer state(s, DType::kUInt8, {static_cast<int64_t>(sizeof(StepState))});
  state.write(std::vector<StepState>{{.learning_rate = 1e-6}});
  const View whole = form.has_remainder ? View{} : View(p), low = form.has_remainder ? View(remainder) : View{};
  const View rounded = form.has_weight ? View(weight) : View{};
  const int64_t bytes = 3 * size_of(form.states) + 2 * size_of(form.states) +
                        (form.has_remainder ? 2 * 2 + 2 * 2 : 2 * size_of(form.parameter) + (form.has_weight ? 2 : 0));
  const auto name = [&](const char* how) { return fmt::format("adam {} {}", form.name, how); };
  bench.bandwidth(name("one range"), static_cast<double>(bytes * n), [&] {
    adam(s, {.parameter = whole,
             .remainder = low,
             .gradient = g,
             .first_moment = m,
             .second_moment = v,
             .model_weight = rounded,
             .state = state.data<StepState>()});
  });
  std::vector<OptimizerRange> table;
  int64_t num_chunks = 0;
  for (int64_t i = 0, begin = 0; i < kRanges; ++i) {
    const int64_t end = i + 1 < kRanges ? n * (i + 1) * (i + 2) / (kRanges * (kRanges + 1)) / 1024 * 1024 : n;
    const auto at = [&](const View& x) -> void* {
      const int64_t element = x.dtype == DType::kUInt8 ? 2 : size_of(x.dtype);
      return x.defined() ? static_cast<char*>(x.data) + begin * element : nullptr;
    };
    table.push_back({.parameter = at(whole),
                     .remainder = at(low),
                     .gradient = at(g),
                     .first_moment = at(m),
                     .second_moment = at(v),
                     .model_weight = at(rounded),
                     .size = end - begin,
                     .first_chunk = num_chunks});
    num_chunks += num_range_chunks(end - begin);
    begin = end;
  }
  Buffer ranges(s, DType::kUInt8, {static_cast<int64_t>(table.size() * sizeof(OptimizerRange))});
  ranges.write(table);
  bench.bandwidth(name("300 ranges"), static_cast<double>(bytes * n), [&] {
    adam_ranges(s, {.ranges = {.table = ranges.data<OptimizerRange>(),
                               .num_ranges = kRanges,
                               .num_chunks = num_chunks,
                               .dtypes = {.has_remainders = form.has_remainder,
                                          .parameter = form.parameter,
                                          .gradient = form.states,
                                          .model_weight = kBf16,
                                          .first_moment = form.states,
                                          .second_moment = form.states}},
                    .state = state.data<StepState>()});
  });
}

void bench_optimizer(Bench& bench) {
  const CudaStream& s = bench.stream();
  for (const AdamForm& form : kAdamForms) bench_adam(bench, form);
  const int64_t n = kParameters;
  const Buffer g(s, kF32, {n}), weight(s, kBf16, {n});
  const Buffer workspace(s, DType::kUInt8, {gradient_statistics_workspace_bytes(n)}), results(s, DType::kUInt8, {64});
  auto* largest = results.data<double>();
  auto* limbs = reinterpret_cast<int64_t*>(results.data<double>() + 1);
  bench.bandwidth("largest_absolute", 4.0 * static_cast<double>(n),
                  [&] { largest_absolute(s, {.x = g, .result = largest, .workspace = workspace}); });
  bench.bandwidth("squared_sum", 4.0 * static_cast<double>(n),
                  [&] { squared_sum(s, {.x = g, .largest = largest, .limbs = limbs, .workspace = workspace}); });
  bench.bandwidth("fill_normal bf16", 2.0 * static_cast<double>(n),
                  [&] { fill_normal(s, {.y = weight, .key = {1}, .global_strides = Shape{1}, .std = 0.02}); });
}

void bench_matmul(Bench& bench) {
  const CudaStream& s = bench.stream();
  const int64_t t = 2 * kS;
  struct Layer {
    const char* name;
    int64_t in, out;
  };
  for (const Layer& layer : {Layer{"qkv", kH, (kHeads + 2 * kGroups) * kD},
                             {"proj", kH, kH},
                             {"fc1", kH, 2 * kF},
                             {"fc2", kF, kH},
                             {"head", kH, kVocabulary}}) {
    const Buffer x(s, kBf16, {t, layer.in}), w(s, kBf16, {layer.out, layer.in}), y(s, kBf16, {t, layer.out});
    const Buffer dx(s, kBf16, {t, layer.in}), dw(s, kF32, {layer.out, layer.in});
    const MatmulArgs forward{.a = x, .b = w, .c = y, .transpose_b = true};
    const Buffer workspace(s, DType::kUInt8, {matmul_workspace_bytes(s, forward)});
    const double operations = 2.0 * static_cast<double>(t * layer.in) * static_cast<double>(layer.out);
    bench.arithmetic(fmt::format("matmul {} forward", layer.name), operations,
                     [&] { matmul(s, {.a = x, .b = w, .c = y, .transpose_b = true, .workspace = workspace}); });
    bench.arithmetic(fmt::format("matmul {} dgrad", layer.name), operations,
                     [&] { matmul(s, {.a = y, .b = w, .c = dx, .workspace = workspace}); });
    bench.arithmetic(fmt::format("matmul {} wgrad into fp32", layer.name), operations, [&] {
      matmul(s, {.a = y, .b = x, .c = dw, .transpose_a = true, .accumulate = true, .workspace = workspace});
    });
  }
}

}  // namespace
}  // namespace megatron::kernels

int main(int argc, char** argv) {
  using namespace megatron::kernels;
  try {
    Bench bench(argc > 2 ? argv[2] : "");
    bench.measure_copy();
    for (auto* part :
         {bench_norms, bench_mlp, bench_rows, bench_indexed_rows, bench_loss, bench_optimizer, bench_matmul})
      part(bench);
    if (argc > 1) bench.write(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
