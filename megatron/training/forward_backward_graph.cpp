#include "megatron/training/forward_backward_graph.h"

#include "megatron/base/error.h"

namespace megatron {

ForwardBackwardGraph::ForwardBackwardGraph(Device& device, GpuRanks* ranks, std::optional<int64_t> num_warm_up_steps)
    : device_(device), ranks_(ranks), num_warm_up_steps_(num_warm_up_steps) {
  require<NotSupported>(!is_on() || device.backend() == DeviceKind::kCuda || device.is_meta(),
                        "[ForwardBackwardGraph] --cuda-graph-impl full_iteration records the work of a GPU, and this "
                        "run computes on the CPU. Leave it out, or give --device cuda.");
}

ForwardBackwardGraph::Setting ForwardBackwardGraph::setting_of(const std::vector<const Tensor*>& inputs) const {
  Setting setting;
  for (const Tensor* input : inputs) {
    setting.inputs.push_back(input->view().data);
    setting.shapes.push_back(input->shape());
  }
  for (int use = 0; use < kNumMemoryUses; ++use)
    setting.live_bytes[static_cast<size_t>(use)] = device_.arena.amount(static_cast<MemoryUse>(use)).live;
  setting.num_live_blocks = device_.arena.num_live_blocks();
  return setting;
}

std::string ForwardBackwardGraph::Setting::change_from(const Setting& before) const {
  if (*this == before) return "";
  if (shapes != before.shapes) return "its micro-batches are others in number or shape than those of its last step";
  for (size_t use = 0; use < live_bytes.size(); ++use)
    if (live_bytes[use] != before.live_bytes[use])
      return fmt::format("{} bytes of {} are in use, and were {} in its last step", live_bytes[use],
                         name_of(static_cast<MemoryUse>(use)), before.live_bytes[use]);
  if (num_live_blocks != before.num_live_blocks)
    return fmt::format("{} blocks of memory are in use, and were {} in its last step", num_live_blocks,
                       before.num_live_blocks);
  return "its micro-batches lie elsewhere in memory than in its last step";
}

/// The host counts operations while it records, and the launch that follows counts them again.
void ForwardBackwardGraph::record(const std::function<void()>& work) {
  if constexpr (kHasCuda) {
    const int64_t before = device_.num_operations, blocks_before = device_.arena.num_live_blocks();
    const GpuRanks::Recording recording(ranks_);
    graph_ = record_cuda_graph(device_.cuda_stream(), work);
    num_operations_ = device_.num_operations - before;
    device_.num_operations = before;
    require<InternalError>(device_.arena.num_live_blocks() == blocks_before,
                           "[ForwardBackwardGraph] of the memory that a step takes, {} blocks stay in use: the next "
                           "launch would write to them.",
                           device_.arena.num_live_blocks() - blocks_before);
  }
}

void ForwardBackwardGraph::launch(std::string_view site) {
  if (ranks_)
    ranks_->launch_graph(site, [this] { graph_->launch(); });
  else
    graph_->launch();
  device_.num_operations += num_operations_;
  ++num_launches_;
}

void ForwardBackwardGraph::run(std::string_view site, const std::vector<const Tensor*>& inputs,
                               const std::function<void()>& work) {
  if (!is_on() || device_.is_meta() || device_.profiler) return work();
  Setting setting = setting_of(inputs);
  const std::string change = setting_ ? setting.change_from(*setting_) : "";
  if (ranks_) ranks_->begin_graph_step(site, change);
  if (!change.empty()) {
    graph_.reset();
    num_runs_ = 0;
  }
  setting_ = std::move(setting);
  if (num_runs_ < *num_warm_up_steps_) {
    ++num_runs_;
    return work();
  }
  if (!graph_) record(work);
  launch(site);
}

}  // namespace megatron
