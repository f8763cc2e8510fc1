// What this version can run. Lift a line here when the feature arrives, and nothing else.
#include <array>

#include "megatron/base/word_list.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {
namespace {

struct Limit {
  bool (*exceeded)(const PretrainConfig&);
  std::string_view text;
};

bool has_virtual_stages(const PretrainConfig& c) { return c.parallel.virtual_pipeline_model_parallel_size.has_value(); }

constexpr auto kLimits = std::to_array<Limit>({
    {[](const PretrainConfig& c) { return c.parallel.context_parallel_size > 1; }, "--context-parallel-size above 1"},
    {[](const PretrainConfig& c) { return c.cuda_graph.records() && c.parallel.pipeline_model_parallel_size > 1; },
     "--cuda-graph-impl with --pipeline-model-parallel-size above 1: ranks whose graphs differ may wait for each "
     "other. "
     "Leave out --cuda-graph-impl"},
    {[](const PretrainConfig& c) {
       return c.cuda_graph.records() && c.parallel.world_size > 1 && !c.profiling.profile_ranks.empty();
     },
     "--cuda-graph-impl with --profile-ranks: ranks launch their graphs in the same steps, and those that are profiled "
     "run op by op. Leave out --profile-ranks"},
    {[](const PretrainConfig& c) {
       return c.cuda_graph.records() && (c.data.reset_attention_mask || c.data.reset_position_ids);
     },
     "--cuda-graph-impl with --reset-attention-mask or --reset-position-ids: a recorded step has as many documents as "
     "when it was recorded. Leave out --cuda-graph-impl"},
    {[](const PretrainConfig& c) { return c.cuda_graph.records() && c.profiling.nvtx_ranges && !c.profiling.profile; },
     "--cuda-graph-impl with --nvtx-ranges: steps with ranges run op by op, and without --profile these are all. Add "
     "--profile, or leave out one"},
    {[](const PretrainConfig& c) { return c.cuda_graph.records() && c.logging.timing_log_level > 1; },
     "--cuda-graph-impl with --timing-log-level 2: nothing inside of a graph has a time of its own. Give "
     "--timing-log-level 1"},
    {[](const PretrainConfig& c) { return c.cuda_graph.records() && c.faults.log_straggler; },
     "--cuda-graph-impl with --log-straggler: nothing inside of a graph has a time of its own. Leave out one"},
    {[](const PretrainConfig& c) { return c.precision.fp16_lm_cross_entropy; }, "--fp16-lm-cross-entropy"},
    {[](const PretrainConfig& c) { return has_virtual_stages(c) && !c.parallel.overlap_p2p_comm; },
     "--no-overlap-p2p-communication with virtual stages: sends always overlap with work. Leave out "
     "--no-overlap-p2p-communication"},
    {[](const PretrainConfig& c) {
       return has_virtual_stages(c) && c.optimizer.overlap_param_gather && !c.parallel.align_param_gather;
     },
     "--no-align-param-gather with virtual stages: all stages gather weights right after the step. Leave out "
     "--no-align-param-gather"},
});

}  // namespace

void require_runnable(const PretrainConfig& config) {
  std::vector<std::string_view> exceeded;
  for (const Limit& limit : kLimits)
    if (limit.exceeded(config)) exceeded.push_back(limit.text);
  require<NotSupported>(exceeded.empty(), "valid, but this version of megatron.cpp cannot run it yet: {}",
                        joined(exceeded, "; "));
}

}  // namespace megatron
