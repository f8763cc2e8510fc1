// --cuda-graph-impl full_iteration: forward and backward of all micro-batches of a step as one CUDA graph.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/core/cuda_graph.h"
#include "megatron/core/device.h"
#include "megatron/core/tensor.h"

namespace megatron {

/// Records a step's work on a GPU and launches the recording in later steps. Values that change between steps are in
/// device memory and written before (StepState, the micro-batches); a recording fixes only their addresses.
/// The host's part of the work is left out in a launch: it must leave the state that the recorded run left. Collectives
/// of the ranks are part of the graph. All ranks record and launch theirs in the same steps: these follow from
/// --cuda-graph-warmup-steps, the profiled steps, which they have in common, and the steps in which a setting changes,
/// which GpuRanks::begin_graph_step holds together.
/// Megatron Core: core/full_cuda_graph.py.
class ForwardBackwardGraph {
 public:
  /// @param num_warm_up_steps  that run op by op, of each shape of a step, before one is recorded: at least 1; none:
  ///                           all do.
  /// @throw NotSupported for a device that has no graphs.
  /// @param ranks  of this device and others; null: this one alone.
  ForwardBackwardGraph(Device& device, GpuRanks* ranks, std::optional<int64_t> num_warm_up_steps);

  /// Runs op by op if a profiler observes the device, and on a meta device.
  /// @param site    which step this is, for messages.
  /// @param work    what the graph stands for. Gives back all memory that it takes, and waits for all that it issues.
  /// @param inputs  tensors that hold what `work` reads and writes and that live for this step alone. Where they, or
  ///                the memory in use, are not as they were at the recording, warm-up begins anew.
  /// @throw CommError where they are not so on some ranks alone.
  void run(std::string_view site, const std::vector<const Tensor*>& inputs, const std::function<void()>& work);

  bool is_on() const { return num_warm_up_steps_.has_value(); }
  /// Steps that were one launch.
  int64_t num_launches() const { return num_launches_; }
  /// Kernels, copies and fills of the last recording; 0: none was made.
  int64_t num_nodes() const { return graph_ ? graph_->num_nodes() : 0; }

 private:
  /// Two steps for which it is equal need the same recording: addresses follow from the memory in use and the requests
  /// for memory.
  struct Setting {
    std::vector<const void*> inputs;
    std::vector<Shape> shapes;
    std::array<int64_t, kNumMemoryUses> live_bytes{};
    int64_t num_live_blocks = 0;
    bool operator==(const Setting&) const = default;
    /// The differences from `before` in words; empty if there are none.
    std::string change_from(const Setting& before) const;
  };
  Setting setting_of(const std::vector<const Tensor*>& inputs) const;
  void record(const std::function<void()>& work);
  void launch(std::string_view site);

  Device& device_;
  GpuRanks* ranks_;
  std::optional<int64_t> num_warm_up_steps_;
  std::optional<Setting> setting_;  // none: no step yet
  int64_t num_runs_ = 0;            // op by op, with this setting
  std::unique_ptr<CudaGraph> graph_;
  int64_t num_operations_ = 0;  // of a launch, as Device counts them
  int64_t num_launches_ = 0;
};

}  // namespace megatron
