// Values that backward needs, in host memory until then.
#include "megatron/training/config/fields.h"

namespace megatron {

void describe_offload(FieldTable& table, PretrainConfig& config) {
  TransformerConfig& net = config.transformer;
  table.begin_group(
      "Activations on the host",
      "What backward needs of a layer is copied to page-locked host memory while the next layer runs, and "
      "back while backward runs that one; results stay the same bit for bit. Copies are hidden where a "
      "layer takes longer than they do: that is so for long sequences, whose attention grows faster than "
      "its values.");
  table
      .add("cpu_offloading_num_layers", net.cpu_offloading_num_layers,
           "layers, from the first one on, whose activations go to host memory")
      .at_least(0)
      .known_as("cpu-offloading cpu-offload activation-offload offload-activations")
      .such_as("--cpu-offloading-num-layers 2");
  const auto is_fine_grained = [&config] { return config.transformer.fine_grained_activation_offloading; };
  table
      .add("fine_grained_activation_offloading", net.fine_grained_activation_offloading,
           "in all layers, the activations of --offload-modules go to host memory")
      .differs({.megatron = "moves the inputs of the modules",
                .ours = "moves what the modules save for backward: their inputs, and in core_attn the output too"})
      .such_as("--fine-grained-activation-offloading --offload-modules core_attn attn_proj");
  table
      .add("offload_modules", net.offload_modules,
           "which parts of a layer; memory that they share with others, as core_attn and attn_proj do, leaves the "
           "device where it is all of theirs")
      .later({"fused_group_mlp"})
      .needs("--fine-grained-activation-offloading", is_fine_grained)
      .such_as("--fine-grained-activation-offloading --offload-modules attn_norm qkv_linear");
  table.add("min_offloaded_tensor_size", net.min_offloaded_tensor_size, "elements; smaller tensors stay on the device")
      .at_least(0)
      .needs("--fine-grained-activation-offloading", is_fine_grained)
      .such_as("--fine-grained-activation-offloading --offload-modules core_attn --min-offloaded-tensor-size 65536");
}

}  // namespace megatron
