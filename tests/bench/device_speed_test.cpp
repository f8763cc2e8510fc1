#include "megatron/bench/device_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DeviceSpeedTest : public ::testing::Test {
 protected:
  DeviceSpeed speed(const std::string& words = "", const std::string& build = "1", double most_seconds = 100) {
    const PretrainConfig config = testing::small_config(testing::gpt2_like(words));
    return device_speed({.config = config,
                         .device = cpu_,
                         .products = no_choices_,
                         .build = build,
                         .cache_folder = folder_,
                         .most_seconds = most_seconds},
                        files_);
  }
  std::string only_file() const { return folder_ + "/" + files_.list(folder_).at(0).name; }

  PosixFileSystem files_;
  testing::ScratchDirectory scratch_;
  std::string folder_ = scratch_.file("cache/megatron");
  DeviceChoice cpu_;
  kernels::MatmulChoices no_choices_;
};

TEST_F(DeviceSpeedTest, IsMeasuredOncePerMachineModelAndBuild) {
  const DeviceSpeed first = speed(), second = speed();
  EXPECT_THAT(first.text, AllOf(HasSubstr("fastest matmul"), HasSubstr("kernel ceiling"), HasSubstr("kept in")));
  EXPECT_GT(first.peak_flops.value(), 0);
  EXPECT_GT(first.ceiling_flops.value(), 0);
  EXPECT_LT(first.ceiling_flops.value(), first.peak_flops.value()) << "operations of matmuls, in the time of all";
  EXPECT_THAT(second.text, AllOf(HasSubstr("from " + folder_), HasSubstr("(remove it to measure again)")));
  EXPECT_EQ(second.cache_file, only_file());
  EXPECT_EQ(first.cache_file, only_file());
  EXPECT_EQ(second.peak_flops, first.peak_flops);
  EXPECT_EQ(second.ceiling_flops, first.ceiling_flops);
  for (const DeviceSpeed& other : {speed("--hidden-size 64"), speed("--attention-dropout 0"), speed("", "2")})
    EXPECT_THAT(other.text, HasSubstr("measured in"));
  EXPECT_THAT(speed("--lr 1e-3 --seed 7").text, HasSubstr("from")) << "no kernel depends on them";
}

TEST_F(DeviceSpeedTest, IsMeasuredAgainIfTheCacheIsDamaged) {
  speed();
  const std::string path = only_file(), good = read_file(files_, path);
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("[]"),
                                 std::string("{\"format\": \"x\"}"), std::string("{\"format\": 1, \"key\": 3}")}) {
    replace_file(files_, path, bad);
    EXPECT_THAT(speed().text, HasSubstr("measured in")) << bad;
    EXPECT_THAT(speed().text, HasSubstr("from " + folder_));
  }
}

TEST_F(DeviceSpeedTest, NeedsNoCache) {
  folder_ = "/proc/none/megatron";
  EXPECT_THAT(speed().text, HasSubstr("not kept"));
  EXPECT_TRUE(speed().ceiling_flops.has_value());
  folder_ = "";
  EXPECT_THAT(speed().text, AllOf(HasSubstr("measured in"), Not(HasSubstr("kept"))));
}

TEST_F(DeviceSpeedTest, OmitsTheCeilingOfAModelThatTakesTooLong) {
  const DeviceSpeed brief = speed("", "1", 0);
  EXPECT_TRUE(brief.peak_flops.has_value());
  EXPECT_FALSE(brief.ceiling_flops.has_value());
  EXPECT_THAT(brief.text, HasSubstr("'megatron bench step'"));
  const PretrainConfig config = testing::small_config(testing::gpt2_like());
  KernelCeiling careful;
  careful.kernels = {{{.name = "all", .calls = 2}, {.best = 0.5}}};
  careful.best_product_rate = 3e9;
  keep_device_speed({.config = config, .device = cpu_, .products = no_choices_, .build = "1", .cache_folder = folder_},
                    careful, files_);
  EXPECT_EQ(speed().peak_flops, 3e9) << "what bench step has measured";
  EXPECT_TRUE(speed().ceiling_flops.has_value());
}

/// Operands that do not fit are no reason to end a run that may fit.
TEST_F(DeviceSpeedTest, StaysUnknownIfKernelsCannotBeMeasured) {
  const PretrainConfig config = testing::small_config(testing::gpt2_like());
  const DeviceSpeed none =
      device_speed({.config = config, .device = cpu_, .capacity_bytes = 4096, .products = no_choices_}, files_);
  EXPECT_FALSE(none.peak_flops || none.ceiling_flops);
  EXPECT_THAT(none.text, HasSubstr("stay unknown"));
}

}  // namespace
}  // namespace megatron
