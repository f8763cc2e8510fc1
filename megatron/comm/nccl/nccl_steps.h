// The steps of a process, and the CUDA graphs that it captures and launches in them.
#pragma once

#include <functional>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/comm/nccl/graph_steps.h"
#include "megatron/comm/nccl/lanes_in_flight.h"
#include "megatron/comm/nccl/nccl_flight.h"
#include "megatron/comm/nccl/store_meeting.h"

namespace megatron {

/// Used by the issuing thread only.
class NcclSteps {
 public:
  /// Refers to its arguments.
  NcclSteps(StoreMeeting& meeting, LanesInFlight& flights, GraphSteps& graph_steps)
      : meeting_(meeting), flights_(flights), graph_steps_(graph_steps) {}

  /// Call it when all lanes are connected.
  void begin() { is_in_step_ = true; }
  void end() noexcept { is_in_step_ = false; }
  bool is_in_step() const { return is_in_step_; }
  void begin_recording() {
    require<InternalError>(is_in_step_, "[NcclSteps] a capture begins in a step, where all lanes are connected");
    is_recording_ = true;
  }
  void end_recording() noexcept { is_recording_ = false; }
  bool is_recording() const { return is_recording_; }
  /// See GpuRanks.
  void begin_graph_step(std::string_view site, std::string_view change);
  void launch_graph(const NcclFlight::Resources& resources, std::string_view site, const std::function<void()>& launch);

 private:
  StoreMeeting& meeting_;
  LanesInFlight& flights_;
  GraphSteps& graph_steps_;
  bool is_in_step_ = false, is_recording_ = false;
};

}  // namespace megatron
