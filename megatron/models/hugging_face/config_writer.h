// Writes a config.json for a model that is given by Megatron's arguments: the inverse of config_reader.h.
#pragma once

#include <string>

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

/// The config.json of a model of the family with these arguments, as far as the family can express them: what
/// arguments_of() makes of the result says what it cannot.
/// @param arguments  under Megatron's names, resolved: no value is left to derive, patterns over layers are lists of 0
/// and 1, and an argument that has no effect on the model is null. Of window_attn_skip_freq, 1 marks layers with
/// window.
Json config_of(const Family& family, const Json& arguments);

/// An argument that may be missing or null.
template <class T>
T argument_or(const Json& arguments, const char* name, T otherwise) {
  const auto found = arguments.find(name);
  return found == arguments.end() || found->is_null() ? otherwise : found->get<T>();
}
/// A whole number where `value` is one but for rounding.
Json snapped(double value);

// Parts that families have in common; each is the inverse of the function derive_... of the same name.

/// Heads that rotate a part of them need a family whose layers do so.
enum class PartialRotation { kSupported, kUnsupported };
void restore_rope(const Json& arguments, Json& config, PartialRotation partial = PartialRotation::kUnsupported);
void restore_latent_rope(const Json& arguments, Json& config);
/// The rotary settings as one object: rope_parameters of transformers 5.
Json rope_parameters_of(const Json& arguments, PartialRotation partial);
void restore_tied_embeddings(const Json& arguments, Json& config);
/// sliding_window; null where the layers have none.
void restore_sliding_window(const Json& arguments, Json& config);
/// layer_types, and sliding_window if a layer has it. @return whether one has it.
bool restore_sliding_layers(const Json& arguments, Json& config);

}  // namespace megatron::hugging_face
