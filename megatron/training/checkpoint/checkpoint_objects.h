// Objects that Megatron requires in a checkpoint beside tensors and the common state. Nothing here reads them.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Adds the states of the generators that Megatron restores when it resumes: those of its own start with this seed,
/// with CUDA generators moved on, so that no iteration draws the numbers of another. Random numbers here depend on seed
/// and names alone (docs/differences.md) and have no state.
/// One data-parallel rank of each tensor and pipeline rank stores it; all ranks call it.
void add_rng_state(CheckpointWriter& writer, Trainer& trainer);
/// A tensor and pipeline rank, and when its generators have which state.
struct RngPlace {
  int64_t seed = 0, iteration = 0;  ///< --seed; iterations that have passed
  int pp_rank = 0, pp_size = 1, tp_rank = 0, tp_size = 1;
};
void add_rng_state(CheckpointWriter& writer, const RngPlace& place);
/// The same as a list, for the form torch.
pickle::Object& make_rng_states(TorchObject& object, const RngPlace& place);

/// Adds an empty extra state for each module that is one of Transformer Engine in a Megatron model with it: the linears
/// and norms of the decoder.
/// One rank stores those of a pipeline stage; all ranks call it.
void add_extra_states(CheckpointWriter& writer, Trainer& trainer);
/// A parameter of a whole model; of experts the part of one of them.
struct ParameterPlace {
  StoredName name;
  std::optional<int64_t> expert = {};
  int64_t num_experts = 0;
};
/// The parameters of a decoder. @param model  tensors of the whole model; those of the optimizer are left out.
std::vector<ParameterPlace> parameter_places(const std::map<std::string, GlobalTensor, std::less<>>& model);
/// Those of the modules that own these parameters. @param num_layers  of the whole model
void add_extra_states(CheckpointWriter& writer, std::span<const ParameterPlace> parameters, int64_t num_layers);

}  // namespace megatron
