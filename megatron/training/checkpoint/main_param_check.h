// Compares stored main parameters with the stored weights: buckets do not name their parameters, so the order in which
// they are found there could be wrong.
#pragma once

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Says whether a weight can be this main parameter, rounded to the weight's dtype in any way.
bool is_rounded(double weight, double main_param, DType dtype);

/// Reads the main parameters and the weights that this rank's optimizer updates.
/// @throw CheckpointError if a weight is not its main parameter, rounded.
void require_main_params_of_weights(const CheckpointReader& reader, Trainer& trainer);

}  // namespace megatron
