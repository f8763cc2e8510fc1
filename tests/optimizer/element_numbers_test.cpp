#include "megatron/optimizer/element_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/autograd/shard_elements.h"
#include "megatron/optimizer/optimizer.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron {
namespace {

struct CutCase {
  Shape shape;
  std::vector<ShardCut> cuts;
  int64_t num_shards;  // of the last axis; two of the expert axis
};

/// Rows, columns, the middle of three dimensions; gate and up; q, k and v of two groups over two and six ranks; experts
/// whose gate and up are cut too.
std::vector<CutCase> cut_cases() {
  const auto plain = [](int dim, int64_t size) { return ShardCut{.dim = dim, .sections = {{.size = size}}}; };
  const ShardCut qkv{.num_groups = 2,
                     .sections = {{.size = 6}, {.size = 3, .replicated = true}, {.size = 3, .replicated = true}}};
  const ShardCut experts{.dim = 0, .axis = ShardAxis::kExpert, .sections = {{.size = 4}}};
  const ShardCut of_expert{.dim = 1, .axis = ShardAxis::kExpertTensor, .sections = {{.size = 6}, {.size = 6}}};
  return {{{6, 5}, {}, 1},
          {{6, 5}, {plain(0, 6)}, 3},
          {{5, 6}, {plain(1, 6)}, 2},
          {{3, 6, 5}, {plain(1, 6)}, 3},
          {{12, 3}, {ShardCut{.sections = {{.size = 6}, {.size = 6}}}}, 3},
          {{3, 12}, {ShardCut{.dim = 1, .sections = {{.size = 6}, {.size = 6}}}}, 2},
          {{24, 2}, {qkv}, 2},
          {{24, 2}, {qkv}, 6},
          {{4, 12, 5}, {experts, of_expert}, 3}};
}

TEST(ElementNumbers, AreThoseOfTheElementsOfTheShardWhereverAPartOfItBegins) {
  testing::TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  for (const CutCase& c : cut_cases())
    for (int64_t rank = 0; rank < c.num_shards; ++rank) {
      SCOPED_TRACE(c.shape.to_string() + " rank " + std::to_string(rank));
      ParameterOptions options{.name = "weight", .shard = ShardSpec::whole(c.shape)};
      options.shard.cuts = c.cuts;
      if (c.cuts.size() > 1) options.shard.grid = ShardGrid::kExpert;
      options.place = {.tensor = {rank, c.num_shards}, .expert = {1, 2}, .expert_tensor = {rank, c.num_shards}};
      const Parameter parameter(ctx, options);
      std::map<int64_t, int64_t> expected;
      for_each_shard_element(parameter, [&](int64_t whole, int64_t local) { expected[local] = whole; });
      const int64_t size = parameter.shape().num_elements();
      ASSERT_EQ(std::ssize(expected), size);
      for (int64_t first : {int64_t{0}, int64_t{1}, size - 1}) {
        const kernels::ElementNumbers numbers = element_numbers_of(parameter, first);
        for (int64_t i = 0; first + i < size; ++i) {
          const kernels::ElementRun run = kernels::run_at(numbers, i);
          EXPECT_EQ(run.number, expected[first + i]) << first << " + " << i;
          ASSERT_GE(run.length, 1);
          for (int64_t k = 0; k < run.length && first + i + k < size; ++k)
            EXPECT_EQ(expected[first + i + k], run.number + k);
        }
      }
    }
}

/// One of two shards: five runs.
ParameterOptions five_sections(DType dtype, int rank = 0) {
  ParameterOptions options{.name = "weight", .shard = ShardSpec::whole({10}), .dtype = dtype};
  options.shard.cuts = {ShardCut{.sections = std::vector<ShardSection>(5, {.size = 2})}};
  options.place.tensor = {rank, 2};
  return options;
}

void make_optimizer_of_five_sections(DType dtype, const OptimizerConfig& config) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    testing::TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    ProcessGroupCollection groups;
    groups.tp = rank.group;
    Parameter parameter(ctx, five_sections(dtype, rank.rank));
    DistributedDataParallel ddp(ctx, {{&parameter}}, groups, {});
    const Optimizer optimizer(ctx, config, ddp);
    EXPECT_EQ(optimizer.states().size(), 1U);
  });
}

TEST(ElementNumbers, OfMoreRunsThanKernelsKnowAreRefused) {
  testing::TestDevice test(DeviceKind::kCpu, 1);
  EXPECT_THROW(element_numbers_of(Parameter(test.context(), five_sections(DType::kFloat32)), 0), NotSupported);
}

TEST(ElementNumbers, AreAskedForWhereSomethingIsRoundedAlone) {
  OptimizerConfig config;
  make_optimizer_of_five_sections(DType::kFloat32, config);
  config.params_dtype = DType::kBFloat16;
  config.use_precision_aware_optimizer = true;
  config.exp_avg_dtype = StateDType::kBFloat16;  // to nearest
  make_optimizer_of_five_sections(DType::kBFloat16, config);
  OptimizerConfig momentum;
  momentum.optimizer = OptimizerType::kSgd;
  make_optimizer_of_five_sections(DType::kFloat32, momentum);

  OptimizerConfig second_moment = config, weights = config;
  second_moment.exp_avg_sq_dtype = StateDType::kBFloat16;
  weights.main_params_dtype = MainParamsDType::kBFloat16;
  for (const OptimizerConfig& rounding : {second_moment, weights}) try {
      make_optimizer_of_five_sections(DType::kBFloat16, rounding);
      ADD_FAILURE() << "nobody knows which draws belong to the weight";
    } catch (const RankFailure& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("--main-params-dtype fp32 and --exp-avg-sq-dtype fp32"));
    }
}

}  // namespace
}  // namespace megatron
