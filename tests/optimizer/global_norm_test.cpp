#include "megatron/optimizer/global_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "megatron/kernels/elementwise.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

constexpr int64_t kVocabulary = 41;

/// Parameters of every kind of cut, as one rank of tp x pp has them. Values are functions of the element of the whole;
/// so are those of the vocabulary's padding, of which there is more on more tensor ranks.
struct Model {
  Model(const Context& ctx, int tp_rank, int tp, int pp_rank, int pp) {
    const auto cut = [](int dim, int64_t groups, std::vector<ShardSection> sections) {
      return ShardCut{.dim = dim, .num_groups = groups, .sections = std::move(sections)};
    };
    const auto add = [&](const std::string& name, const Shape& shape, std::vector<ShardCut> cuts,
                         const TiedCopy& tied = {}, int64_t unpadded_rows = 0) {
      own.push_back(std::make_unique<Parameter>(
          ctx,
          ParameterOptions{.name = name,
                           .shard = {.global_shape = shape, .unpadded_rows = unpadded_rows, .cuts = std::move(cuts)},
                           .dtype = DType::kFloat32,
                           .place = {.tensor = {tp_rank, tp}},
                           .tied = tied,
                           .init_std = 1}));
    };
    const auto add_words = [&] {
      const int64_t rows = (kVocabulary / (4 * tp) + 1) * 4 * tp;
      add("words", {rows, 9}, {cut(0, 1, {{rows}})},
          {.group = "words", .holder = pp_rank == 0 ? 0 : 1, .num_holders = pp > 1 ? 2 : 1}, kVocabulary);
    };
    if (pp_rank == 0) {
      add_words();
      // Two query groups of 3 heads of 4 rows, with 4 rows of keys and of values: four ranks share each group in pairs.
      add("qkv", {40, 9}, {cut(0, 2, {{12}, {4, true}, {4, true}})});
      add("norm", {9}, {});
    }
    if (pp_rank == pp - 1) {
      add("proj", {9, 24}, {cut(1, 1, {{24}})});
      add("gated", {16, 9}, {cut(0, 1, {{8}, {8}})});
      add("bias", {9}, {});
      if (pp > 1) add_words();
    }
  }
  std::vector<Parameter*> all() const {
    std::vector<Parameter*> list;
    for (const auto& parameter : own) list.push_back(parameter.get());
    return list;
  }
  std::vector<std::unique_ptr<Parameter>> own;
};

struct Norm {
  double norm = 0, largest = 0;
  int64_t zeros = 0;
  size_t num_parts = 0;
};

int64_t num_elements(const std::vector<Tensor>& parts) {
  int64_t n = 0;
  for (const Tensor& part : parts) n += part.num_elements();
  return n;
}

/// Norm of gradients that are equal to the initial weights, but for zeros in the first two rows of "norm" and "bias".
Norm norm_of_rank(const ProcessGroupCollection& groups, bool distributed, int instances) {
  TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  const Model model(ctx, groups.tp.rank(), groups.tp.size(), groups.pp.rank(), groups.pp.size());
  DistributedDataParallel ddp(
      ctx, {model.all()}, groups,
      {.use_distributed_optimizer = distributed, .num_distributed_optimizer_instances = instances});
  for (Parameter* parameter : model.all()) {
    parameter->initialize(ctx);
    if (parameter->shape().rank() == 1)
      for (int i = 0; i < 2; ++i) parameter->value().data<float>()[i] = 0;
    kernels::copy(ctx.device.cpu_stream(),
                  {.x = std::as_const(*parameter).value().view(), .y = parameter->main_grad().view()});
  }
  std::vector<FlatRange> ranges;
  for (const FlatRange& owned : ddp.owned_ranges())
    for (const FlatRange& counted : counted_ranges(owned, ddp)) ranges.push_back(counted);
  const std::vector<Tensor> parts = merged_grads(ranges, ddp);
  EXPECT_EQ(num_elements(parts), std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                                                 [](int64_t n, const auto& r) { return n + r.end - r.begin; }));
  GlobalNorm norm(ctx, distributed ? groups.intra_dist_opt : groups.world);
  norm.find_largest(ctx, parts);
  norm.add_squares(ctx, parts, true);
  norm.finish(ctx);
  return {norm.norms().data<double>()[1], norm.norms().data<double>()[0], *norm.num_zeros().data<int64_t>(),
          parts.size()};
}

TEST(GlobalNorm, HasTheBitsOfOneRankInAnyLayout) {
  const Norm one = norm_of_rank(ProcessGroupCollection::single(), false, 1);
  EXPECT_GT(one.norm, 10);
  EXPECT_EQ(one.zeros, 4);
  EXPECT_EQ(one.num_parts, 1U);  // all gradients of one rank lie side by side
  for (const bool distributed : {false, true})
    for (const auto& [tp, pp, dp, instances] : {std::tuple{1, 1, 3, 1},
                                                {2, 1, 1, 1},
                                                {4, 1, 1, 1},
                                                {1, 2, 1, 1},
                                                {2, 2, 2, 1},
                                                {4, 2, 1, 1},
                                                {1, 1, 4, 2},
                                                {2, 1, 4, 2},
                                                {1, 2, 3, 1}}) {
      if (instances > 1 && !distributed) continue;  // makes no sense
      SCOPED_TRACE(fmt::format("tp {} pp {} dp {} instances {} distributed {}", tp, pp, dp, instances, distributed));
      const ParallelLayout layout({.world_size = tp * pp * dp,
                                   .tensor_model_parallel_size = tp,
                                   .pipeline_model_parallel_size = pp,
                                   .num_distributed_optimizer_instances = instances});
      run_ranks(tp * pp * dp, [&](RankContext& rank) {
        const Norm norm = norm_of_rank(ProcessGroupCollection::make(rank.world, layout), distributed, instances);
        EXPECT_EQ(norm.norm, one.norm);
        EXPECT_EQ(norm.largest, one.largest);
        EXPECT_EQ(norm.zeros, one.zeros);
      });
    }
}

/// The norms on two ranks, of which one has `odd` among its gradients.
std::vector<double> norms_with(float odd, int odd_rank) {
  std::vector<double> largest(2);
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    Tensor gradients = ctx.empty("gradients", {5}, DType::kFloat32);
    for (int i = 0; i < 5; ++i) gradients.data<float>()[i] = static_cast<float>(i);
    if (rank.rank == odd_rank) gradients.data<float>()[2] = odd;
    GlobalNorm norm(ctx, rank.group);
    norm.find_largest(ctx, {gradients});
    largest[static_cast<size_t>(rank.rank)] = norm.norms().data<double>()[0];
  });
  return largest;
}

TEST(GlobalNorm, NanOnOneRankIsTheLargestOnAll) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (const int odd_rank : {0, 1}) {
    for (const float nan : {kNan, -kNan})
      for (double largest : norms_with(nan, odd_rank)) EXPECT_TRUE(std::isnan(largest)) << largest;
    for (double largest : norms_with(-kInfinity, odd_rank)) EXPECT_EQ(largest, kInfinity);
    for (double largest : norms_with(-7, odd_rank)) EXPECT_EQ(largest, 7);
  }
}

/// The maximum of NCCL may ignore NaN, so the ranks compare whole numbers.
TEST(GlobalNorm, ComparesRanksByTheBitsOfTheirNumbers) {
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    GlobalNorm norm(ctx, rank.group);
    norm.find_largest(ctx, {});
    const auto record = rank.world.recorder().last();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->site.view(), "largest gradient");
    EXPECT_EQ(record->dtype, DType::kInt64);
  });
}

}  // namespace
}  // namespace megatron::testing
