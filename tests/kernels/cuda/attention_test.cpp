// Attention on CUDA against the CPU.
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

struct Sizes {
  int64_t s = 1, s_k = 1, b = 1, n = 1, g = 1, d = 1, dv = 1;
};

std::vector<SequenceSpan> uniform_spans(const Sizes& z) {
  std::vector<SequenceSpan> spans;
  for (int32_t column = 0; column < z.b; ++column)
    spans.push_back({.batch = column,
                     .query_length = static_cast<int32_t>(z.s),
                     .key_length = static_cast<int32_t>(z.s_k),
                     .query_offset = static_cast<int32_t>(z.s_k - z.s)});
  return spans;
}

class CudaAttention : public testing::CudaTest {
 protected:
  void expect_agreement(DType dtype, const Sizes& z, const std::vector<SequenceSpan>& spans,
                        const AttentionOptions& options, Placement p = {}) {
    const Shape q_shape{z.s, z.b, z.n, z.d}, k_shape{z.s_k, z.b, z.g, z.d}, v_shape{z.s_k, z.b, z.g, z.dv};
    const Shape o_shape{z.s, z.b, z.n, z.dv};
    const auto random = [&](const Shape& shape, uint64_t seed) {
      return Twin(dtype, shape, random_values(shape.num_elements(), seed), p);
    };
    Twin q = random(q_shape, 1), k = random(k_shape, 2), v = random(v_shape, 3), grad_o = random(o_shape, 4);
    Twin sink(dtype, {z.n}, random_values(z.n, 5)), grad_sink(dtype, {z.n}), lse(DType::kFloat32, {z.n, z.b, z.s});
    Twin o(dtype, o_shape, {}, p), grad_q(dtype, q_shape, {}, p), grad_k(dtype, k_shape, {}, p);
    Twin grad_v(dtype, v_shape, {}, p), workspace(DType::kUInt8, {1 << 24});
    Twin max_logits(DType::kFloat64, {z.n}, std::vector<double>(static_cast<size_t>(z.n)));
    TwinValues<SequenceSpan> places(spans);
    TwinValues<StepState> state({StepState{.step = 11}});
    const auto layout = [&](auto on) {
      return SequenceLayoutView{.s = z.s,
                                .b = z.b,
                                .spans = on(places),
                                .num_spans = static_cast<int64_t>(spans.size()),
                                .rows = {.first_sample = 3, .sequence_length = 1000, .b = z.b}};
    };
    const auto with_state = [&](auto on) {
      AttentionOptions result = options;
      result.state = on(state);
      return result;
    };
    // Probabilities, which sum to 1, are rounded to the dtype before the matmul with the values.
    testing::Result output = within(o, z.s_k, 4);
    output.absolute += testing::tolerance(dtype);
    testing::Result largest = within(max_logits, 1);
    largest.absolute = within(lse, z.s_k + z.d, 4).absolute;
    std::vector<testing::Result> forward_results = {output, within(lse, z.s_k + z.d, 4)};
    if (finds_max_logits_) forward_results.push_back(largest);
    compare(forward_results, [&](const auto& stream, auto on) {
      forward(stream, {.q = on(q),
                       .k = on(k),
                       .v = on(v),
                       .sink = on(sink),
                       .layout = layout(on),
                       .options = with_state(on),
                       .o = on(o),
                       .lse = on(lse),
                       .max_logits = finds_max_logits_ ? on(max_logits) : View(),
                       .workspace = on(workspace)});
    });
    // dot(o, grad_o) carries the rounding of o; a gradient of a key sums over the queries of a group.
    const int64_t rows = z.s * (z.n / z.g);
    const double rounding = epsilon(dtype) * std::sqrt(static_cast<double>(z.dv));
    std::vector<testing::Result> results = {within(grad_q, z.s_k + z.d, 16), within(grad_k, rows + z.d, 16),
                                            within(grad_v, rows, 16)};
    for (testing::Result& result : results) result.absolute += rounding;
    if (options.softmax == AttentionSoftmax::kLearnable) {
      results.push_back(within(grad_sink, z.s * z.b, 16));
      results.back().absolute += rounding * std::sqrt(static_cast<double>(z.s * z.b));
    }
    compare(results, [&](const auto& stream, auto on) {
      backward(stream, {.q = on(q),
                        .k = on(k),
                        .v = on(v),
                        .sink = on(sink),
                        .o = on(o),
                        .lse = on(lse),
                        .grad_o = on(grad_o),
                        .layout = layout(on),
                        .options = with_state(on),
                        .grad_q = on(grad_q),
                        .grad_k = on(grad_k),
                        .grad_v = on(grad_v),
                        .grad_sink = on(grad_sink),
                        .workspace = on(workspace)});
    });
  }

  /// Shared memory that built-in kernels are told a block has; 0: whichever kernels the dispatch of attention chooses.
  int64_t shared_bytes_ = 0;
  bool finds_max_logits_ = false;

 private:
  template <class Stream>
  void forward(const Stream& stream, const AttentionForwardArgs& args) const {
    if constexpr (std::is_same_v<Stream, CudaStream>)
      if (shared_bytes_ > 0) return tiled_attention_forward(stream, args, shared_bytes_);
    attention_forward(stream, args);
  }
  template <class Stream>
  void backward(const Stream& stream, const AttentionBackwardArgs& args) const {
    if constexpr (std::is_same_v<Stream, CudaStream>)
      if (shared_bytes_ > 0) return tiled_attention_backward(stream, args, shared_bytes_);
    attention_backward(stream, args);
  }
};

TEST_F(CudaAttention, AgreesWithTheCpuForAllDtypesAndOddSizes) {
  for (DType dtype : kCudaTypes)
    for (Placement p : testing::kPlacements)
      for (const Sizes& z :
           {Sizes{1, 1, 1, 1, 1, 1, 1}, Sizes{70, 70, 2, 4, 2, 24, 16}, Sizes{130, 130, 1, 2, 1, 128, 128},
            Sizes{65, 65, 1, 2, 2, 192, 128}, Sizes{33, 33, 2, 1, 1, 256, 256}, Sizes{5, 90, 2, 3, 1, 64, 64}})
        for (bool is_causal : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} s {} d {} causal {} gap {} shift {}", dtype, z.s, z.d, is_causal, p.gap, p.shift));
          expect_agreement(dtype, z, uniform_spans(z),
                           {.scale = 1 / std::sqrt(static_cast<double>(z.d)), .is_causal = is_causal}, p);
        }
}

TEST_F(CudaAttention, WindowsAgreeWithTheCpu) {
  const Sizes z{200, 200, 1, 2, 1, 40, 40};
  for (int64_t left : {-1, 0, 5, 70})
    for (int64_t right : {-1, 0, 66}) {
      SCOPED_TRACE(fmt::format("window {} {}", left, right));
      expect_agreement(DType::kFloat32, z, uniform_spans(z),
                       {.scale = 0.2, .is_causal = false, .window_left = left, .window_right = right});
    }
  expect_agreement(DType::kBFloat16, z, uniform_spans(z), {.scale = 0.2, .window_left = 90});
}

TEST_F(CudaAttention, PackedAndPaddedSequencesAgreeWithTheCpu) {
  const Sizes z{150, 150, 2, 4, 2, 32, 32};
  // Column 0: three documents and padding; column 1: one short sequence.
  const std::vector<SequenceSpan> spans = {
      {.batch = 0, .query_begin = 0, .query_length = 3, .key_begin = 0, .key_length = 3},
      {.batch = 0, .query_begin = 3, .query_length = 70, .key_begin = 3, .key_length = 70},
      {.batch = 0, .query_begin = 73, .query_length = 60, .key_begin = 73, .key_length = 60},
      {.batch = 1, .query_begin = 10, .query_length = 101, .key_begin = 10, .key_length = 101}};
  for (DType dtype : kCudaTypes) {
    expect_agreement(dtype, z, spans, {.scale = 0.2});
    expect_agreement(dtype, z, spans, {.scale = 0.2, .dropout = 0.2, .dropout_key = {5}});
  }
}

TEST_F(CudaAttention, DropoutDrawsTheMaskOfTheCpu) {
  for (const Sizes& z : {Sizes{100, 100, 2, 4, 2, 64, 64}, Sizes{40, 40, 1, 2, 1, 256, 160}})
    for (DType dtype : kCudaTypes)
      expect_agreement(dtype, z, uniform_spans(z),
                       {.scale = 0.1, .dropout = 0.3, .dropout_key = {77}, .first_head = 6});
}

TEST_F(CudaAttention, SinksAgreeWithTheCpu) {
  const Sizes z{70, 70, 2, 4, 2, 32, 32};
  for (AttentionSoftmax softmax : {AttentionSoftmax::kOffByOne, AttentionSoftmax::kLearnable})
    for (DType dtype : kCudaTypes)
      expect_agreement(dtype, z, uniform_spans(z), {.scale = 0.2, .window_left = 20, .softmax = softmax});
}

TEST_F(CudaAttention, TilesOfGpusWithLittleSharedMemoryAgreeWithTheCpu) {
  for (const int64_t bytes : {kSmallTileBytes, kLargeTileBytes})
    for (DType dtype : kCudaTypes)
      for (const Sizes& z : {Sizes{70, 70, 2, 4, 2, 24, 16}, Sizes{130, 130, 1, 2, 1, 128, 128},
                             Sizes{65, 65, 1, 2, 2, 192, 128}, Sizes{33, 33, 2, 1, 1, 256, 256}}) {
        SCOPED_TRACE(fmt::format("{} bytes, {} s {} d {}", bytes, dtype, z.s, z.d));
        shared_bytes_ = bytes;
        const double scale = 1 / std::sqrt(static_cast<double>(z.d));
        expect_agreement(dtype, z, uniform_spans(z), {.scale = scale});
        expect_agreement(dtype, z, uniform_spans(z), {.scale = scale, .dropout = 0.2, .dropout_key = {5}});
      }
}

TEST_F(CudaAttention, SoftCapsOfScoresAgreeWithTheCpu) {
  for (const Sizes& z : {Sizes{70, 70, 2, 4, 2, 24, 16}, Sizes{130, 130, 1, 2, 1, 128, 128},
                         Sizes{33, 33, 2, 2, 1, 256, 256}, Sizes{5, 90, 2, 3, 1, 64, 64}})
    for (DType dtype : kCudaTypes)
      for (const double cap : {0.5, 2.0, 50.0}) {
        SCOPED_TRACE(fmt::format("{} s {} d {} cap {}", dtype, z.s, z.d, cap));
        expect_agreement(dtype, z, uniform_spans(z), {.scale = 0.4, .soft_cap = cap});
        expect_agreement(dtype, z, uniform_spans(z), {.scale = 0.4, .soft_cap = cap, .window_left = 20});
      }
  const Sizes z{40, 40, 1, 2, 1, 64, 64};
  expect_agreement(DType::kBFloat16, z, uniform_spans(z),
                   {.scale = 0.4, .soft_cap = 1, .dropout = 0.3, .dropout_key = {77}});
}

TEST_F(CudaAttention, LargestLogitsAgreeWithTheCpu) {
  finds_max_logits_ = true;
  for (AttentionSoftmax softmax : {AttentionSoftmax::kVanilla, AttentionSoftmax::kLearnable})
    for (const Sizes& z : {Sizes{70, 70, 2, 4, 2, 24, 16}, Sizes{130, 130, 1, 2, 1, 128, 128},
                           Sizes{33, 33, 2, 2, 1, 256, 256}, Sizes{128, 128, 2, 4, 2, 64, 64}})
      for (DType dtype : kCudaTypes)
        for (const double cap : {0.0, 1.0}) {
          SCOPED_TRACE(fmt::format("{} s {} d {} cap {}", dtype, z.s, z.d, cap));
          expect_agreement(dtype, z, uniform_spans(z), {.scale = 0.4, .soft_cap = cap, .softmax = softmax});
        }
}

TEST_F(CudaAttention, LargerHeadsAreRejected) {
  const Sizes z{2, 2, 1, 1, 1, 264, 8};
  EXPECT_THROW(expect_agreement(DType::kFloat32, z, uniform_spans(z), {}), NotSupported);
}

}  // namespace
}  // namespace megatron::kernels
