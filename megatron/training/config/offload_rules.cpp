// Rules of values in host memory.
#include <algorithm>

#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

void check_layers(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kFlag = "--cpu-offloading-num-layers";
  const TransformerConfig& net = config.transformer;
  const int64_t number = net.cpu_offloading_num_layers;
  if (number >= net.num_layers && net.num_layers > 0)
    mistakes.add({kFlag, "--num-layers"},
                 "{} {} must be below --num-layers {}: backward begins with the last layer, whose values would be "
                 "fetched as soon as they are away. Give at most {}",
                 kFlag, number, net.num_layers, net.num_layers - 1);
  if (config.parallel.has_stages())
    mistakes.add({kFlag, "--pipeline-model-parallel-size"},
                 "{} {} and --pipeline-model-parallel-size {} exclude each other: the first layers would be those of "
                 "the first stage alone. Leave one of them out",
                 kFlag, number, config.parallel.pipeline_model_parallel_size);
  if (net.recompute_granularity != RecomputeGranularity::kNone)
    mistakes.add({kFlag, "--recompute-granularity", "--recompute-activations"},
                 "{} {} and recompute exclude each other: what is computed again need not be kept on the host. Leave "
                 "one of them out",
                 kFlag, number);
}

bool offloads(const TransformerConfig& net, OffloadModule module) {
  return std::ranges::find(net.offload_modules, module) != net.offload_modules.end();
}

void check_recomputed_modules(const TransformerConfig& net, Mistakes& mistakes) {
  if (!net.recomputes(RecomputeModule::kMoe)) return;
  for (const auto& [module, name] : names_of_enum(OffloadModule{}))
    if ((module == OffloadModule::kExpertFc1 || module == OffloadModule::kMoeAct) && offloads(net, module))
      mistakes.add({"--offload-modules", "--recompute-modules"},
                   "--offload-modules {} and --recompute-modules moe exclude each other: experts that are computed "
                   "again keep nothing until then. Leave one of them out",
                   name);
}

void check_modules(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kFlag = "--fine-grained-activation-offloading", kModules = "--offload-modules";
  const TransformerConfig& net = config.transformer;
  if (net.offload_modules.empty())
    mistakes.add({kFlag, kModules}, "{} needs {}: which parts of a layer, such as core_attn attn_proj", kFlag,
                 kModules);
  if (net.cpu_offloading_num_layers > 0)
    mistakes.add({kFlag, "--cpu-offloading-num-layers"},
                 "{} and --cpu-offloading-num-layers exclude each other: it moves all that layers save. Leave one of "
                 "them out",
                 kFlag);
  if (offloads(net, OffloadModule::kAttnProj) && !offloads(net, OffloadModule::kCoreAttn))
    mistakes.add({kModules},
                 "{} attn_proj needs core_attn too: both keep the output of attention, which otherwise stays on the "
                 "device",
                 kModules);
  if ((offloads(net, OffloadModule::kExpertFc1) || offloads(net, OffloadModule::kMoeAct)) && !net.moe)
    mistakes.add({kModules, "--num-experts"}, "{} expert_fc1 and moe_act are parts of experts: give --num-experts",
                 kModules);
  if (net.recompute_granularity == RecomputeGranularity::kFull)
    mistakes.add({kFlag, "--recompute-granularity"},
                 "{} and --recompute-granularity full exclude each other: layers that are computed again keep their "
                 "input alone. Leave one of them out, or give --recompute-granularity selective",
                 kFlag);
  check_recomputed_modules(net, mistakes);
}

}  // namespace

void check_offload(const PretrainConfig& config, Mistakes& mistakes) {
  if (config.transformer.cpu_offloading_num_layers > 0) check_layers(config, mistakes);
  if (config.transformer.fine_grained_activation_offloading)
    check_modules(config, mistakes);
  else if (!config.transformer.offload_modules.empty())
    mistakes.add({"--offload-modules", "--fine-grained-activation-offloading"},
                 "--offload-modules goes with --fine-grained-activation-offloading only");
  if (config.transformer.offloads_activations() && config.cuda_graph.records())
    mistakes.add({"--cuda-graph-impl", "--cpu-offloading-num-layers", "--fine-grained-activation-offloading"},
                 "--cuda-graph-impl and activations on the host exclude each other: copies beside kernels are not part "
                 "of a recorded step. Leave one of them out");
}

}  // namespace megatron
