// Energy, power and clock of a processor during a measurement.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace megatron {

/// Readings of a processor; a value that is not available is nothing. Any thread, one at a time.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;
  /// Value of a counter that never decreases; its start has no meaning.
  virtual std::optional<double> joules() = 0;
  /// The current power.
  virtual std::optional<double> watts() = 0;
  virtual std::optional<double> mhz() = 0;
  /// "NVML", "RAPL".
  virtual std::string source() const = 0;
};

/// A GPU through NVIDIA's management library, loaded at run time.
/// @param pci_bus_id  as CUDA names it: "0000:1b:00.0". Null without the library or the GPU.
std::unique_ptr<PowerMeter> open_gpu_meter(const std::string& pci_bus_id);

/// All packages of this host by Linux's powercap (Intel's and AMD's RAPL), the clock as the mean over the cores.
/// @param root  folder of sys/ and proc/; "" outside of tests
std::unique_ptr<PowerMeter> open_cpu_meter(const std::string& root);

/// Means between start() and stop().
struct PowerUse {
  std::optional<double> joules;  // by the counter
  std::optional<double> watts;   // joules a second, or the mean of the samples without an energy counter
  std::optional<double> mhz;
  double seconds = 0;
};

/// Reads a meter ten times a second, in a thread of its own.
class PowerRecorder {
 public:
  /// @param meter  may be null: then there are no readings
  explicit PowerRecorder(PowerMeter* meter) : meter_(meter) {}
  ~PowerRecorder();
  PowerRecorder(const PowerRecorder&) = delete;
  PowerRecorder& operator=(const PowerRecorder&) = delete;

  void start();
  PowerUse stop();

 private:
  void sample();
  void end_thread();

  PowerMeter* meter_;
  std::thread thread_;
  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::vector<double> watts_, mhz_;
  std::optional<double> joules_at_start_;
  double started_ = 0;
};

}  // namespace megatron
