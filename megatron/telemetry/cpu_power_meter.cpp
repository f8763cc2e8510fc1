#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "megatron/telemetry/power_meter.h"

// Source: Linux, Documentation/power/powercap/powercap.rst.

namespace megatron {
namespace {

namespace fs = std::filesystem;

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// A counter in microjoules that wraps at `range`.
class EnergyCounter {
 public:
  EnergyCounter(const fs::path& directory, double start)
      : path_(directory / "energy_uj"),
        last_(start),
        range_(number_in(directory / "max_energy_range_uj").value_or(0)) {}
  /// Joules since construction.
  double read() {
    const double value = number_in(path_).value_or(last_);
    total_ += value >= last_ ? value - last_ : value + range_ - last_;
    last_ = value;
    return 1e-6 * total_;
  }

 private:
  fs::path path_;
  double last_, range_, total_ = 0;
};

class CpuMeter final : public PowerMeter {
 public:
  explicit CpuMeter(const fs::path& root) : cores_(root / "sys/devices/system/cpu"), cpuinfo_(root / "proc/cpuinfo") {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root / "sys/class/powercap", none)) {
      // "intel-rapl:0" is a package, "intel-rapl:0:0" a part of it; AMD's have the same names.
      const std::string name = entry.path().filename().string();
      if (std::ranges::count(name, ':') != 1 || !name.starts_with("intel-rapl:")) continue;
      if (const auto start = number_in(entry.path() / "energy_uj")) packages_.emplace_back(entry.path(), *start);
    }
  }

  std::optional<double> joules() override {
    if (packages_.empty()) return std::nullopt;
    double sum = 0;
    for (EnergyCounter& package : packages_) sum += package.read();
    return sum;
  }
  std::optional<double> watts() override { return std::nullopt; }
  std::optional<double> mhz() override {
    double sum = 0;
    int count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(cores_, none))
      if (const auto khz = number_in(entry.path() / "cpufreq/scaling_cur_freq")) sum += 1e-3 * *khz, ++count;
    if (count > 0) return sum / count;
    std::ifstream file(cpuinfo_);
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(':');
      double value = 0;
      if (!line.starts_with("cpu MHz") || colon == std::string::npos) continue;
      if (std::istringstream(line.substr(colon + 1)) >> value) sum += value, ++count;
    }
    if (count > 0) return sum / count;
    return std::nullopt;
  }
  std::string source() const override { return packages_.empty() ? "" : "RAPL"; }

 private:
  fs::path cores_, cpuinfo_;
  std::vector<EnergyCounter> packages_;
};

}  // namespace

std::unique_ptr<PowerMeter> open_cpu_meter(const std::string& root) {
  return std::make_unique<CpuMeter>(root.empty() ? "/" : root);
}

}  // namespace megatron
