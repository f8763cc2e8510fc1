#include "megatron/optimizer/param_scheduler.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/optimizer/param_scheduler_entries.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

// Nothing for a style that the enums do not have: the reference refuses it late or never.
std::optional<ParamSchedulerConfig> scheduler_config_of(const Json& args) {
  ParamSchedulerConfig config;
  const auto style = [&]<class E>(const char* key, E& target) {
    if (!args.contains(key) || args[key].is_null()) return true;
    for (const auto& [value, name] : names_of_enum(E{}))
      if (name == args[key].get<std::string>()) return target = value, true;
    return false;
  };
  config.init_lr = args["init_lr"];
  config.max_lr = args["max_lr"];
  config.min_lr = args["min_lr"];
  config.lr_warmup_steps = args["lr_warmup_steps"];
  config.lr_decay_steps = args["lr_decay_steps"];
  config.start_wd = args["start_wd"];
  config.end_wd = args["end_wd"];
  config.wd_incr_steps = args["wd_incr_steps"];
  if (const auto steps = args.find("wsd_decay_steps"); steps != args.end() && !steps->is_null())
    config.wsd_decay_steps = steps->get<int64_t>();
  config.override_opt_param_scheduler = args.value("override_opt_param_scheduler", false);
  config.use_checkpoint_opt_param_scheduler = args.value("use_checkpoint_opt_param_scheduler", false);
  const bool known = style("lr_decay_style", config.lr_decay_style) &&
                     style("lr_wsd_decay_style", config.lr_wsd_decay_style) &&
                     style("wd_incr_style", config.wd_incr_style);
  return known ? std::optional(config) : std::nullopt;
}

ParamGroupSchedule group_of(const Json& json) {
  ParamGroupSchedule group;
  const auto take = [&](const char* key, std::optional<double>& target) {
    if (json.contains(key)) target = json[key].get<double>();
  };
  take("max_lr", group.max_lr);
  take("min_lr", group.min_lr);
  take("start_wd", group.start_wd);
  take("end_wd", group.end_wd);
  group.wd_mult = json.value("wd_mult", 1.0);
  return group;
}

ParamSchedulerEntries entries_of(const Json& state) {
  ParamSchedulerEntries entries;
  for (const auto& [key, value] : state.items()) {
    if (value.is_string())
      entries[key] = value.get<std::string>();
    else if (value.is_number_integer())
      entries[key] = value.get<int64_t>();
    else
      entries[key] = value.get<double>();
  }
  return entries;
}

// The two groups of the golden loads.
const ParamGroupSchedule kPlain{};
const ParamGroupSchedule kOwnRates{.max_lr = 0.005, .min_lr = 0.0001, .wd_mult = 0.0};

void expect_now(const ParamScheduler& scheduler, const Json& expected) {
  EXPECT_DOUBLE_EQ(scheduler.lr(kPlain), expected["lr"][0].get<double>());
  EXPECT_DOUBLE_EQ(scheduler.lr(kOwnRates), expected["lr"][1].get<double>());
  EXPECT_DOUBLE_EQ(scheduler.weight_decay(kPlain), expected["wd"][0].get<double>());
  EXPECT_DOUBLE_EQ(scheduler.weight_decay(kOwnRates), expected["wd"][1].get<double>());
}

TEST(ParamScheduler, FollowsTheGoldenSchedulesOfEveryStyleInEveryGroup) {
  for (const Json& test : testing::golden_json("training/schedules.json", "cases")) {
    SCOPED_TRACE(test["args"].dump());
    ParamScheduler scheduler(scheduler_config_of(test["args"]).value());
    for (size_t row = 0; row < test["lr"].size(); ++row) {
      if (row > 0) scheduler.step(test["increments"][row - 1]);
      for (size_t g = 0; g < test["groups"].size(); ++g) {
        const ParamGroupSchedule group = group_of(test["groups"][g]);
        EXPECT_DOUBLE_EQ(scheduler.lr(group), test["lr"][row][g].get<double>()) << "row " << row;
        EXPECT_DOUBLE_EQ(scheduler.weight_decay(group), test["wd"][row][g].get<double>()) << "row " << row;
      }
    }
    EXPECT_EQ(scheduler.num_steps(), test["num_steps"].get<int64_t>());
  }
}

TEST(ParamScheduler, RefusesWhatTheReferenceRefuses) {
  int refused = 0;
  for (const Json& test : testing::golden_json("training/schedules.json", "construct")) {
    SCOPED_TRACE(test["args"].dump());
    const std::optional<ParamSchedulerConfig> config = scheduler_config_of(test["args"]);
    if (!config) continue;  // an unknown style cannot be written down
    if (test["error"].is_null()) {
      EXPECT_NO_THROW(ParamScheduler{*config});
    } else {
      EXPECT_THROW(ParamScheduler{*config}, ConfigError);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(ParamScheduler, LoadsCheckpointsAsTheReferenceDoes) {
  for (const Json& test : testing::golden_json("training/schedules.json", "load")) {
    SCOPED_TRACE(test["args"].dump() + test["state"].dump());
    ParamSchedulerConfig config = scheduler_config_of(test["args"]).value();
    config.override_opt_param_scheduler = test["override"];
    config.use_checkpoint_opt_param_scheduler = test["use_checkpoint"];
    ParamScheduler scheduler(config);
    const ParamSchedulerState stored = param_scheduler_state_of(entries_of(test["state"]));
    if (!test["error"].is_null()) {
      const ParamSchedulerEntries before = to_entries(scheduler.state());
      EXPECT_THROW(scheduler.load(stored), CheckpointError);
      EXPECT_EQ(to_entries(scheduler.state()), before) << "a refused load changes nothing";
      continue;
    }
    scheduler.load(stored);
    expect_now(scheduler, test["after_load"]);
    EXPECT_EQ(to_entries(scheduler.state()), entries_of(test["after_load"]["state"]));
    scheduler.step(2);
    expect_now(scheduler, test["after_one_step_of_2"]);
  }
}

TEST(ParamScheduler, ListsEveryMistake) {
  ParamSchedulerConfig config;
  config.max_lr = 1e-5;
  config.min_lr = 1e-3;
  config.start_wd = config.end_wd = -0.1;
  EXPECT_EQ(mistakes_of(config).size(), 3u);  // rates, decay length, weight decay
}

TEST(ParamScheduler, RefusesAGroupWhoseOwnDecayGrowsUnderConstantStyle) {
  ParamScheduler scheduler({.max_lr = 1e-3, .lr_decay_steps = 10, .wd_incr_steps = 10});
  EXPECT_THROW(scheduler.weight_decay({.start_wd = 0.0, .end_wd = 0.1}), ConfigError);
}

TEST(ParamScheduler, NamesAMissingEntryOfACheckpoint) {
  ParamSchedulerEntries entries = to_entries(ParamSchedulerState{});
  entries.erase("min_lr");
  try {
    param_scheduler_state_of(entries);
    FAIL() << "the entry was not missed";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("min_lr"), std::string::npos);
  }
}

}  // namespace
}  // namespace megatron
