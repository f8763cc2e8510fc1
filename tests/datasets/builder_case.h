// Whole builder cases as tests/golden/data/blend/builder.json and reference_compare.py write them down, compared with
// ours.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "megatron/datasets/dataset_builder.h"

namespace megatron::testing {

/// The data flags of a case's "config".
GptDataSources read_sources(const nlohmann::json& config);

/// Expects types, sizes, names, orders and samples of all splits.
void expect_equal_datasets(const GptDatasets& datasets, const nlohmann::json& expected);

}  // namespace megatron::testing
