#include "megatron/telemetry/power_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

/// Files as Linux has them below /sys and /proc.
class FakeHost {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(root()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  void package(const std::string& name, int64_t microjoules, int64_t range = 1000000000) {
    write("sys/class/powercap/" + name + "/energy_uj", std::to_string(microjoules));
    write("sys/class/powercap/" + name + "/max_energy_range_uj", std::to_string(range));
  }
  std::string root() const { return directory_.path(); }

 private:
  testing::ScratchDirectory directory_;
};

TEST(CpuMeter, AddsUpPackagesAndNotTheirParts) {
  FakeHost host;
  host.package("intel-rapl:0", 5000000);
  host.package("intel-rapl:1", 7000000);
  host.package("intel-rapl:0:0", 1000000);  // the cores of package 0
  const auto meter = open_cpu_meter(host.root());
  const double before = meter->joules().value();
  host.package("intel-rapl:0", 6500000);
  host.package("intel-rapl:1", 7250000);
  host.package("intel-rapl:0:0", 9000000);
  EXPECT_DOUBLE_EQ(meter->joules().value() - before, 1.75);
  EXPECT_EQ(meter->source(), "RAPL");
}

TEST(CpuMeter, CountsOnWhereTheCounterBeginsAnew) {
  FakeHost host;
  host.package("intel-rapl:0", 9000000, 10000000);
  const auto meter = open_cpu_meter(host.root());
  const double before = meter->joules().value();
  host.package("intel-rapl:0", 2000000, 10000000);
  EXPECT_DOUBLE_EQ(meter->joules().value() - before, 3);
}

TEST(CpuMeter, ClockIsTheMeanOfTheCores) {
  FakeHost host;
  host.write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2000.5\nprocessor\t: 1\ncpu MHz\t\t: 3000.5\ncpu MHz : ?");
  EXPECT_DOUBLE_EQ(open_cpu_meter(host.root())->mhz().value(), 2500.5);
  host.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3500000");
  host.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000");
  EXPECT_DOUBLE_EQ(open_cpu_meter(host.root())->mhz().value(), 3550);
}

TEST(CpuMeter, KnowsNothingWhereNothingIsReadable) {
  FakeHost host;
  const auto meter = open_cpu_meter(host.root());
  EXPECT_FALSE(meter->joules());
  EXPECT_FALSE(meter->watts());
  EXPECT_FALSE(meter->mhz());
  EXPECT_EQ(meter->source(), "");
}

TEST(GpuMeter, IsNullForAGpuThatIsNotThere) { EXPECT_EQ(open_gpu_meter("ffff:ff:1f.0"), nullptr); }

struct FixedMeter final : PowerMeter {
  std::optional<double> joules() override { return counts ? std::optional(total += 3) : std::nullopt; }
  std::optional<double> watts() override { return 50; }
  std::optional<double> mhz() override { return std::nullopt; }
  std::string source() const override { return "test"; }
  bool counts = false;
  double total = 100;
};

TEST(PowerRecorder, TakesTheCounterWhereThereIsOne) {
  FixedMeter meter;
  PowerRecorder recorder(&meter);
  recorder.start();
  const PowerUse sampled = recorder.stop();
  EXPECT_EQ(sampled.watts, 50);
  EXPECT_FALSE(sampled.joules);
  EXPECT_FALSE(sampled.mhz);
  meter.counts = true;
  recorder.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const PowerUse counted = recorder.stop();
  EXPECT_EQ(counted.joules, 3);
  EXPECT_GE(counted.seconds, 5e-3);
  EXPECT_DOUBLE_EQ(counted.watts.value(), 3 / counted.seconds);
}

TEST(PowerRecorder, WithoutAMeterKnowsTheTimeAlone) {
  PowerRecorder recorder(nullptr);
  recorder.start();
  const PowerUse use = recorder.stop();
  EXPECT_FALSE(use.watts);
  EXPECT_GE(use.seconds, 0);
  recorder.start();  // and ends with its scope
}

}  // namespace
}  // namespace megatron
