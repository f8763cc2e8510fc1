// The description of a PretrainConfig: every setting once, with flag, default, range, unit and help.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "megatron/base/field.h"
#include "megatron/core/dtype.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Such numbers are exact as doubles.
constexpr double kMostSamples = 1e15;
constexpr double kLargestSeed = 4294967295;  // of NumPy's generator, which orders the data
constexpr double kLargestScale = 0x1p127;    // a power of 2 in float32

/// The table is bound to `config`, which must outlive it.
FieldTable describe(PretrainConfig& config);

/// A level of Python's logging module, by its number or its name. @throw ConfigError
int64_t read_logging_level(std::string_view text);

/// A setting that names layers: N, or a list or expression of 0 and 1.
Field& add_pattern(FieldTable& table, std::string_view name, LayerPattern& pattern, std::string_view help);

// The parts of describe(), one file each.
void describe_model(FieldTable& table, PretrainConfig& config);
void describe_attention(FieldTable& table, PretrainConfig& config);
/// Activations in host memory.
void describe_offload(FieldTable& table, PretrainConfig& config);
void describe_experts(FieldTable& table, PretrainConfig& config);
void describe_training(FieldTable& table, PretrainConfig& config);
void describe_optimizer(FieldTable& table, PretrainConfig& config);
void describe_parallel(FieldTable& table, PretrainConfig& config);
void describe_data(FieldTable& table, PretrainConfig& config);
void describe_checkpoint(FieldTable& table, PretrainConfig& config);
void describe_logging(FieldTable& table, PretrainConfig& config);
void describe_faults(FieldTable& table, PretrainConfig& config);
void describe_profiling(FieldTable& table, PretrainConfig& config);
void describe_no_effect(FieldTable& table, PretrainConfig& config);

/// The dtypes of parameters, for the derived argument params_dtype.
constexpr auto names_of_enum(DType) {
  return std::to_array<std::pair<DType, std::string_view>>({{DType::kFloat64, "float64"},
                                                            {DType::kFloat32, "float32"},
                                                            {DType::kBFloat16, "bfloat16"},
                                                            {DType::kFloat16, "float16"}});
}

}  // namespace megatron
