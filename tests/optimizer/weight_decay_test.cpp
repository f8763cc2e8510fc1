// Which parameters decay is said by their options, not by their names.
#include <gtest/gtest.h>

#include <map>

#include "megatron/optimizer/optimizer.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// By name.
std::map<std::string, double> multipliers(bool applies_to_qk_norms) {
  TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  const auto make = [&](const char* name, const Shape& shape, WeightDecay decay) {
    return std::make_unique<Parameter>(
        ctx, ParameterOptions{.name = name, .shard = ShardSpec::whole(shape), .weight_decay = decay});
  };
  std::vector<std::unique_ptr<Parameter>> own;
  own.push_back(make("matrix.bias", {2, 3}, WeightDecay::kUnlessVector));
  own.push_back(make("q_layernorm.vector", {3}, WeightDecay::kUnlessVector));
  own.push_back(make("experts", {2, 3}, WeightDecay::kNever));
  own.push_back(make("scale", {3}, WeightDecay::kIfQueryKeyNorm));
  std::vector<Parameter*> parameters;
  for (const auto& parameter : own) parameters.push_back(parameter.get());
  DistributedDataParallel ddp(ctx, {parameters}, ProcessGroupCollection::single(), {});
  OptimizerConfig config;
  config.apply_wd_to_qk_layernorm = applies_to_qk_norms;
  const Optimizer optimizer(ctx, config, ddp);
  std::map<std::string, double> found;
  for (const ParamGroup& group : optimizer.groups())
    for (const size_t state : group.members)
      found[optimizer.states()[state].parameter->name()] = group.schedule.wd_mult;
  return found;
}

TEST(WeightDecay, FollowsTheOptionsOfTheParameterWhateverItsName) {
  EXPECT_EQ(multipliers(false), (std::map<std::string, double>{
                                    {"matrix.bias", 1}, {"q_layernorm.vector", 0}, {"experts", 0}, {"scale", 0}}));
  EXPECT_EQ(multipliers(true), (std::map<std::string, double>{
                                   {"matrix.bias", 1}, {"q_layernorm.vector", 0}, {"experts", 0}, {"scale", 1}}));
}

}  // namespace
}  // namespace megatron::testing
