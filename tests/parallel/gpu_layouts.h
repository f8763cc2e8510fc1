// Layouts that ranks with a GPU each train, two, four or eight: each way of cutting a model, and some of them together.
#pragma once

#include <string>
#include <vector>

namespace megatron::testing {

/// The model that these layouts cut, for small_trainer.h: 4 layers, global batches of 8 samples.
inline constexpr const char* kGpuModel =
    " --num-layers 4 --global-batch-size 8 --micro-batch-size 1 --lr 1e-3 --deterministic-mode";

/// The flags that layouts of `num_ranks` ranks add to the command line of one rank. Some layouts have no pipeline.
std::vector<std::string> gpu_layouts_of(int num_ranks);

/// Says whether ranks exchange documents before each step, whose number and length differ between steps.
bool shares_documents(const std::string& layout);

/// Layouts of 8 layers: two pieces of the model on each stage of four. Empty for two ranks.
std::vector<std::string> deep_gpu_layouts_of(int num_ranks);

}  // namespace megatron::testing
