// Adam, SGD, seeds of losses and initial values on CUDA against the CPU.
#include "megatron/kernels/adam.h"
#include "megatron/kernels/loss_seed.h"
#include "megatron/kernels/main_params.h"
#include "megatron/kernels/random_fill.h"
#include "megatron/kernels/sgd.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::kCudaTypes;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

class CudaOptimizer : public testing::CudaTest {};

StepState step_state() {
  return {.step = 3,
          .inverse_scale = 0.5,
          .clip_factor = 0.75,
          .learning_rate = 1e-2,
          .weight_decay = 0.1,
          .bias_correction1 = 0.19,
          .bias_correction2 = 0.0975};
}
std::vector<double> squares(std::vector<double> values) {
  for (double& value : values) value *= value;
  return values;
}

TEST_F(CudaOptimizer, AdamAgreesWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (int64_t n : {1, 2077, 65536})
      for (int64_t shift : {0, 1})
        for (bool decoupled : {true, false}) {
          SCOPED_TRACE(fmt::format("{} n {} shift {}", dtype, n, shift));
          Twin p(DType::kFloat32, {n}, random_values(n, 1), {0, shift}), g(dtype, {n}, random_values(n, 2), {0, shift});
          Twin m(dtype, {n}, random_values(n, 3), {0, shift});
          Twin v(DType::kFloat32, {n}, squares(random_values(n, 4)), {0, shift}), weight(dtype, {n}, {}, {0, shift});
          for (bool found_inf : {false, true}) {
            StepState values = step_state();
            values.found_inf = found_inf ? 1 : 0;
            TwinValues<StepState> state({values});
            TwinValues<double> rate({0.03});
            compare({within(p, 1, 4), within(m, 1, 4), within(v, 1, 16), within(weight, 1, 4)},
                    [&](const auto& stream, auto on) {
                      adam(stream, {.parameter = on(p),
                                    .gradient = on(g),
                                    .first_moment = on(m),
                                    .second_moment = on(v),
                                    .model_weight = on(weight),
                                    .beta2 = 0.95,
                                    .decoupled_weight_decay = decoupled,
                                    .learning_rate_multiplier = 0.5,
                                    .learning_rate = decoupled ? on(rate) : nullptr,
                                    .state = on(state)});
                    });
          }
        }
}

/// Operands of a step of one range.
struct RangeTwins {
  RangeTwins(int64_t n, int64_t shift, DType low, uint64_t seed)
      : size(n),
        p(DType::kFloat32, {n}, random_values(n, seed), {0, shift}),
        g(DType::kFloat32, {n}, random_values(n, seed + 1), {0, shift}),
        m(low, {n}, random_values(n, seed + 2), {0, shift}),
        v(DType::kFloat32, {n}, squares(random_values(n, seed + 3))),
        weight(low, {n}, std::vector<double>(static_cast<size_t>(n), 0.5), {0, shift}),
        remainder(DType::kUInt8, {n, 2}, std::vector<double>(static_cast<size_t>(2 * n), 7), {0, 2 * shift}) {}
  int64_t size;
  Twin p, g, m, v, weight, remainder;
};
struct RangesCase {
  bool is_adam = true, halves = false;

  template <class On>
  OptimizerRange range_of(RangeTwins& x, On on) const {
    return {.parameter = halves ? nullptr : on(x.p).data,
            .remainder = halves ? on(x.remainder).data : nullptr,
            .gradient = on(x.g).data,
            .first_moment = on(x.m).data,
            .second_moment = is_adam ? on(x.v).data : nullptr,
            .model_weight = on(x.weight).data,
            .weight_decay_multiplier = x.size % 2 == 0 ? 0.0 : 1.0,
            .size = x.size};
  }
  template <class Stream>
  void run(const Stream& stream, std::vector<OptimizerRange> table, DType low, const StepState* state) const {
    int64_t num_chunks = 0;
    for (OptimizerRange& range : table) {
      range.first_chunk = num_chunks;
      num_chunks += num_range_chunks(range.size);
    }
    testing::DeviceBytes memory(static_cast<int64_t>(table.size() * sizeof(OptimizerRange)), 0);
    memory.write(table.data());
    OptimizerRanges ranges{.table = table.data(),
                           .num_ranges = static_cast<int64_t>(table.size()),
                           .num_chunks = num_chunks,
                           .dtypes = {.has_remainders = halves, .model_weight = low, .first_moment = low}};
    if constexpr (std::is_same_v<Stream, CudaStream>)
      ranges.table = reinterpret_cast<const OptimizerRange*>(memory.data());
    if (is_adam)
      adam_ranges(stream, {.ranges = ranges, .beta2 = 0.95, .state = state});
    else
      sgd_ranges(stream, {.ranges = ranges, .momentum = 0.9, .state = state});
  }
};

/// Ranges on both sides of a chunk, of nothing, and off alignment: as the CPU's, and to the bit as one launch for each.
TEST_F(CudaOptimizer, RangesAgreeWithTheCpuAndWithOneLaunchForEach) {
  for (DType low : {DType::kBFloat16, DType::kFloat16})
    for (const auto& [is_adam, halves] : {std::pair{true, false}, {true, true}, {false, false}}) {
      if (halves && low != DType::kBFloat16) continue;
      SCOPED_TRACE(fmt::format("{} adam {} halves {}", low, is_adam, halves));
      const RangesCase which{.is_adam = is_adam, .halves = halves};
      TwinValues<StepState> state({step_state()});
      std::vector<RangeTwins> all;
      for (int64_t n : {int64_t{5}, kRangeChunk, int64_t{0}, kRangeChunk + 3, int64_t{2076}, 3 * kRangeChunk - 1})
        all.emplace_back(n, static_cast<int64_t>(all.size()) % 2, low, 10 * all.size());
      std::vector<testing::Result> results;
      for (RangeTwins& x : all) {
        if (x.size == 0) continue;
        if (!halves) results.push_back(within(x.p, 1, 4));
        results.push_back(within(x.m, 1, 4));
        if (is_adam) results.push_back(within(x.v, 1, 16));
        results.push_back(within(x.weight, 1, 4));
      }
      const auto step = [&](const auto& stream, auto on) {
        std::vector<OptimizerRange> table;
        for (RangeTwins& x : all) table.push_back(which.range_of(x, on));
        which.run(stream, table, low, on(state));
      };
      if (halves)
        for (RangeTwins& x : all) x.remainder.reset();
      compare(results, [&](const auto& stream, auto on) {
        if constexpr (std::is_same_v<decltype(on), testing::OnGpu>)
          for (RangeTwins& x : all) x.remainder.reset_gpu();
        step(stream, on);
      });
      std::vector<std::vector<char>> together;
      for (const testing::Result& result : results) together.push_back(result.twin->bytes());
      for (const testing::Result& result : results) result.twin->reset_gpu();
      for (RangeTwins& x : all) {
        x.remainder.reset_gpu();
        which.run(stream_, {which.range_of(x, testing::OnGpu())}, low, state.gpu());
      }
      testing::check_cuda(cudaDeviceSynchronize());
      for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].twin->bytes(), together[i]) << "result " << i;
    }
}

TEST_F(CudaOptimizer, MainParamsInTwoHalvesAgreeWithTheCpu) {
  for (int64_t n : {1, 2077, 65536})
    for (int64_t shift : {0, 1}) {
      SCOPED_TRACE(fmt::format("n {} shift {}", n, shift));
      Twin main(DType::kFloat32, {n}, random_values(n, 1), {0, shift}), joined(DType::kFloat32, {n}, {}, {0, shift});
      Twin weight(DType::kBFloat16, {n}, {}, {0, shift}), remainder(DType::kUInt8, {n, 2}, {}, {0, 2 * shift});
      Twin g(DType::kBFloat16, {n}, random_values(n, 2), {0, shift}), m(DType::kBFloat16, {n}, random_values(n, 3));
      Twin v(DType::kBFloat16, {n}, squares(random_values(n, 4)));
      compare({{&weight}, {&remainder}, {&joined}}, [&](const auto& stream, auto on) {
        split_main_params(stream, {.main = on(main), .weight = on(weight), .remainder = on(remainder)});
        join_main_params(stream, {.weight = on(weight), .remainder = on(remainder), .main = on(joined)});
      });
      TwinValues<StepState> state({step_state()});
      compare({within(joined, 1, 4), within(m, 1, 4), within(v, 1, 16)}, [&](const auto& stream, auto on) {
        split_main_params(stream, {.main = on(main), .weight = on(weight), .remainder = on(remainder)});
        adam(stream, {.remainder = on(remainder),
                      .gradient = on(g),
                      .first_moment = on(m),
                      .second_moment = on(v),
                      .model_weight = on(weight),
                      .state = on(state)});
        join_main_params(stream, {.weight = on(weight), .remainder = on(remainder), .main = on(joined)});
      });
    }
}

/// Counts bf16 numbers; if the fp32 numbers before differ in their last bits, some round to the other neighbour.
int64_t num_different(Twin& x) {
  const GuardedTensor gpu = x.from_gpu();
  const BFloat16* cpu = x.cpu().as<BFloat16>();
  int64_t count = 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) count += gpu[i] != static_cast<double>(static_cast<float>(cpu[i]));
  return count;
}

/// Shards that are whole, that begin inside a block of draws, and that have one or two runs a row, whose ends packs
/// meet or cross.
TEST_F(CudaOptimizer, RoundsWeightsAndSecondMomentsByTheDrawsOfTheCpu) {
  const ElementNumbers parts[] = {{},
                                  {.first = 3},
                                  {.block = 2048, .whole_block = 8192, .runs = {{{0, 4096}, {}, {}, {}}}},
                                  {.first = 20, .block = 25, .whole_block = 100, .runs = {{{0, 5}, {16, 60}, {}, {}}}}};
  for (const ElementNumbers& numbers : parts)
    for (bool halves : {false, true})
      for (int64_t n : {1, 2077, 65536})
        for (int64_t shift : {0, 1}) {
          SCOPED_TRACE(fmt::format("block {} halves {} n {} shift {}", numbers.block, halves, n, shift));
          Twin p(DType::kBFloat16, {n}, random_values(n, 1), {0, shift});
          Twin g(halves ? DType::kFloat32 : DType::kBFloat16, {n}, random_values(n, 2));
          Twin m(DType::kBFloat16, {n}, random_values(n, 3), {0, shift});
          Twin v(DType::kBFloat16, {n}, squares(random_values(n, 4)), {0, shift});
          Twin remainder(DType::kUInt8, {n, 2}, std::vector<double>(static_cast<size_t>(2 * n), 7), {0, 2 * shift});
          TwinValues<StepState> state({step_state()});
          std::vector<testing::Result> results = {within(p, 1, 4), within(m, 1, 4), within(v, 1, 16)};
          compare(results, [&](const auto& stream, auto on) {
            if constexpr (std::is_same_v<decltype(on), testing::OnGpu>)
              remainder.reset_gpu();
            else
              remainder.reset();
            adam(stream, {.parameter = halves ? View{} : on(p),
                          .remainder = halves ? on(remainder) : View{},
                          .gradient = on(g),
                          .first_moment = on(m),
                          .second_moment = on(v),
                          .model_weight = halves ? on(p) : View{},
                          .beta2 = 0.95,
                          .rounding = {.key = {42}, .numbers = numbers},
                          .state = on(state)});
          });
          // The fp32 numbers differ by 16 units of their last place, of 2^16 for one of bf16, at most.
          const int64_t most = 8 + n * 16 * 2 / (1 << 16);
          EXPECT_LE(num_different(v), most);
          if (!halves) {
            EXPECT_LE(num_different(p), most);
          }
        }
}

/// All packs of the tensor are whole and aligned, of the first range too; those of the others are not.
TEST_F(CudaOptimizer, RangesOfARoundedTensorHaveTheBitsOfOneLaunch) {
  const int64_t n = 2 * kRangeChunk, ends[] = {1000, kRangeChunk + 3, n};
  TwinValues<StepState> state({step_state()});
  for (bool halves : {false, true}) {
    Twin weight(DType::kBFloat16, {n}, random_values(n, 1)), g(DType::kBFloat16, {n}, random_values(n, 2));
    Twin m(DType::kBFloat16, {n}, random_values(n, 3)), v(DType::kBFloat16, {n}, squares(random_values(n, 4)));
    Twin remainder(DType::kUInt8, {n, 2}, std::vector<double>(static_cast<size_t>(2 * n), 7));
    const auto all_bytes = [&] {
      testing::check_cuda(cudaDeviceSynchronize());
      return std::vector{weight.bytes(), m.bytes(), v.bytes(), remainder.bytes()};
    };
    adam(stream_, {.parameter = halves ? View{} : weight.gpu(),
                   .remainder = halves ? remainder.gpu() : View{},
                   .gradient = g.gpu(),
                   .first_moment = m.gpu(),
                   .second_moment = v.gpu(),
                   .model_weight = halves ? weight.gpu() : View{},
                   .rounding = {.key = {42}},
                   .state = state.gpu()});
    const auto whole = all_bytes();
    for (Twin* twin : {&weight, &m, &v, &remainder}) twin->reset_gpu();
    std::vector<OptimizerRange> table;
    int64_t begin = 0, num_chunks = 0;
    for (int64_t end : ends) {
      const auto at = [&](Twin& x) { return x.gpu().as<BFloat16>() + begin; };
      table.push_back({.parameter = halves ? nullptr : at(weight),
                       .remainder = halves ? static_cast<char*>(remainder.gpu().data) + 2 * begin : nullptr,
                       .gradient = at(g),
                       .first_moment = at(m),
                       .second_moment = at(v),
                       .model_weight = halves ? at(weight) : nullptr,
                       .size = end - begin,
                       .first_chunk = num_chunks,
                       .rounding = {.key = {42}, .numbers = {.first = begin}}});
      num_chunks += num_range_chunks(end - begin);
      begin = end;
    }
    testing::DeviceBytes memory(static_cast<int64_t>(table.size() * sizeof(OptimizerRange)), 0);
    memory.write(table.data());
    adam_ranges(stream_, {.ranges = {.table = reinterpret_cast<const OptimizerRange*>(memory.data()),
                                     .num_ranges = std::ssize(table),
                                     .num_chunks = num_chunks,
                                     .dtypes = {.has_remainders = halves,
                                                .parameter = DType::kBFloat16,
                                                .gradient = DType::kBFloat16,
                                                .model_weight = DType::kBFloat16,
                                                .first_moment = DType::kBFloat16,
                                                .second_moment = DType::kBFloat16}},
                          .state = state.gpu()});
    EXPECT_EQ(all_bytes(), whole) << "halves " << halves;
  }
}

TEST_F(CudaOptimizer, SgdAgreesWithTheCpu) {
  TwinValues<StepState> state({step_state()});
  for (DType dtype : kCudaTypes)
    for (double momentum : {0.0, 0.9}) {
      const int64_t n = 2077;
      Twin p(DType::kFloat32, {n}, random_values(n, 1)), g(dtype, {n}, random_values(n, 2));
      Twin m(dtype, {n}, random_values(n, 3)), weight(dtype, {n});
      std::vector<testing::Result> results = {within(p, 1, 4), within(weight, 1, 4)};
      if (momentum != 0) results.push_back(within(m, 1, 4));
      compare(results, [&](const auto& stream, auto on) {
        sgd(stream, {.parameter = on(p),
                     .gradient = on(g),
                     .momentum_buffer = momentum != 0 ? on(m) : View{},
                     .model_weight = on(weight),
                     .momentum = momentum,
                     .state = on(state)});
      });
    }
}

TEST_F(CudaOptimizer, InitialValuesHaveTheBitsOfTheCpu) {
  for (DType dtype : kCudaTypes)
    for (testing::Placement p : testing::kPlacements)
      for (int64_t offset : {0, 3, 1 << 20}) {
        Twin y(dtype, {5, 3, 131}, {}, p);
        compare({{&y}}, [&](const auto& stream, auto on) {
          fill_normal(stream, {.y = on(y),
                               .key = {42},
                               .global_strides = {4000, 131, 1},
                               .global_offset = offset + (int64_t{1} << 34),
                               .std = 0.02});
        });
      }
}

TEST_F(CudaOptimizer, LossSeedsHaveTheBitsOfTheCpu) {
  for (int64_t n : {0, 1, 3, 12345677}) {
    TwinValues<int64_t> num_tokens({n});
    TwinValues<StepState> state({step_state()});
    compare({}, [&](const auto& stream, auto on) {
      loss_seed(stream, {.num_tokens = on(num_tokens), .loss_scale = 65536, .state = on(state)});
    });
    EXPECT_EQ(state.from_gpu()[0].loss_seed, state.from_cpu()[0].loss_seed) << n;
  }
}

}  // namespace
}  // namespace megatron::kernels
