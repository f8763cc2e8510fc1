// An exchange of rows in two halves runs beside what is computed between them, in both passes, and changes no bit.
#include "megatron/tensor_parallel/row_exchange.h"

#include <gtest/gtest.h>

#include "megatron/ops/linear.h"
#include "tests/testing/logged_group.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

constexpr int64_t kNumRows = 8, kWidth = 6, kOutputs = 4;

struct Exchanged {
  RankLog log;
  std::vector<double> rows, product, input_gradient, weight_gradient;
};

std::unique_ptr<Parameter> weight_of_product(const Context& ctx) {
  auto weight = std::make_unique<Parameter>(
      ctx, ParameterOptions{
               .name = "w", .shard = ShardSpec::whole({kOutputs, kWidth}), .dtype = DType::kFloat64, .init_std = 1});
  weight->initialize(ctx);
  weight->set_main_grad(ctx.empty("gradient", weight->shape(), weight->dtype(), MemoryUse::kGradients));
  weight->begin_step();
  return weight;
}

/// Exchanges x, multiplies x beside it or after it, and goes backward; as rank 1 of two sees it.
Exchanged run_exchange(RowExchange exchange, bool in_halves) {
  Exchanged result;
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    Exchanged own;
    LoggedProducts products(own.log);
    LoggedGroup group(rank.group, rank.world.recorder(), own.log);
    test.device.profiler = &products;
    Context ctx = test.context();
    Tape tape(test.device);
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    const std::unique_ptr<Parameter> weight = weight_of_product(ctx);
    Tensor x = ctx.empty("x", {kNumRows, kWidth}, DType::kFloat64);
    fill_uniform(ctx, x, rank.rank == 0 ? "x of rank 0" : "x of rank 1");
    tape.watch(x);
    const TapeSlot input = x.slot;
    Tensor rows, product;
    if (in_halves) {
      RowsInFlight in_flight = start_exchange(ctx, x, group.group(), exchange);
      product = linear(ctx, x, *weight, nullptr);
      rows = finish_exchange(ctx, std::move(in_flight));
    } else {
      rows = exchange_rows(ctx, x, group.group(), exchange);
      product = linear(ctx, x, *weight, nullptr);
    }
    own.log += "| ";
    own.rows = values_of(rows);
    own.product = values_of(product);
    tape.seed(ctx, rows.slot, rows.detach());
    tape.seed(ctx, product.slot, product.detach());
    tape.backward(ctx, Phase::kBW, 0);
    own.input_gradient = values_of(tape.take_gradient(input));
    own.weight_gradient = values_of(weight->main_grad());
    EXPECT_TRUE(tape.is_done());
    if (rank.rank == 1) result = own;
  });
  return result;
}

TEST(RowExchange, InHalvesIsUnderWayBesideWhatIsComputedBetweenThemAndChangesNoBit) {
  const std::tuple<RowExchange, std::string, std::string> cases[] = {
      {RowExchange::kGather, "all_gather", "reduce_scatter"},
      {RowExchange::kReduceScatter, "reduce_scatter", "all_gather"},
      {RowExchange::kAllToAll, "all_to_all", "all_to_all"}};
  for (const auto& [exchange, forward, backward] : cases) {
    SCOPED_TRACE(forward);
    const Exchanged halves = run_exchange(exchange, true), whole = run_exchange(exchange, false);
    EXPECT_EQ(halves.log, forward + " multiply 8 wait | " + backward + " multiply 8 multiply 4 wait ");
    EXPECT_EQ(halves.rows, whole.rows);
    EXPECT_EQ(halves.product, whole.product);
    EXPECT_EQ(halves.input_gradient, whole.input_gradient);
    EXPECT_EQ(halves.weight_gradient, whole.weight_gradient);
  }
}

TEST(RowExchange, InHalvesNeedsNoTapeAndNoSecondRank) {
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    Context ctx = test.context();
    Tensor x = ctx.empty("x", {kNumRows, kWidth}, DType::kFloat64);
    fill_uniform(ctx, x, "x");
    const Tensor rows = finish_exchange(ctx, start_exchange(ctx, x, rank.group, RowExchange::kAllToAll));
    EXPECT_EQ(values_of(rows), values_of(exchange_rows(ctx, x, rank.group, RowExchange::kAllToAll)));
    EXPECT_EQ(values_of(finish_exchange(ctx, start_exchange(ctx, x, {}, RowExchange::kGather))), values_of(x));
  });
}

}  // namespace
}  // namespace megatron::testing
