// Reads the arguments stored in a checkpoint, for --use-checkpoint-args.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Sets the fields of `table` that describe the model: kind, norms, positions, activation and tokenizer always, sizes
/// if they are not given.
/// @param text  the stored arguments as a JSON object under Megatron's names; others are left out.
/// @throw ConfigError if it is no JSON object or a value does not fit.
void take_stored_arguments(FieldTable& table, const std::string& text);

/// The same for a model of Hugging Face's, whose vocabulary is that of its embedding. Its tokenizer is taken unless a
/// flag names one. @param config  what `table` describes.
void take_hugging_face_arguments(FieldTable& table, PretrainConfig& config, const std::string& text);

/// Arguments that say what the weights mean and that `config` has otherwise, such as "normalization is LayerNorm there
/// and RMSNorm here". Empty for stored arguments that make no model here: its tensors say more then.
std::vector<std::string> other_meanings(const PretrainConfig& config, const std::string& text);

/// Arguments that differ in `config`, in the same form, and that the order of samples depends on if either run has
/// --dataloader-type cyclic. Empty if samples come in one order.
std::vector<std::string> other_sample_order(const PretrainConfig& config, const std::string& text);

}  // namespace megatron
