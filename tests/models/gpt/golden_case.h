// Golden models of tests/golden/training: their configuration, tensors and batches as ours.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/golden_tensors.h"

namespace megatron::testing {

/// Configuration of a model from Megatron Core's constructor arguments.
/// @param transformer  fields of its TransformerConfig. @param model arguments of its GPTModel. @param yarn its further
///                     fields, or null.
/// @throw DataError for a name that is not known, so that nothing is passed over.
TransformerConfig golden_config(const nlohmann::json& transformer, const nlohmann::json& model,
                                const nlohmann::json& yarn);
/// The case of models.json with this name.
nlohmann::json golden_model(const std::string& name);

/// Writes values into a contiguous tensor of a floating dtype; rows beyond them are left as they are.
void store(const std::vector<double>& values, Tensor& x);

/// A batch [b, s] as the model takes it: [s, b], uniform layout.
Batch micro_batch_of(const Context& ctx, const Shape& batch, const std::vector<int64_t>& tokens,
                     const std::vector<int64_t>& labels, const std::vector<double>& loss_mask);
/// The batch of a file of models.json.
Batch golden_batch(const Context& ctx, const GoldenTensors& tensors);

/// Length of all sums that a value passes on its way through the model, one after the other: what rounding errors of
/// logits grow with. @param s rows.
int64_t length_there(const TransformerConfig& config, int64_t s);
/// The same for gradients, with their sums over tokens and vocabulary.
int64_t length_there_and_back(const TransformerConfig& config, int64_t s, int64_t b);

}  // namespace megatron::testing
