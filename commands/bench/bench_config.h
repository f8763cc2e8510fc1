// The flags of megatron bench.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/bench/kernel_case.h"
#include "megatron/bench/step_kernels.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

enum class BenchKind { kGemm, kAttention, kOps, kComm, kStep };
constexpr std::array<std::pair<BenchKind, std::string_view>, 5> names_of_enum(BenchKind) {
  return {{{BenchKind::kGemm, "gemm"},
           {BenchKind::kAttention, "attention"},
           {BenchKind::kOps, "ops"},
           {BenchKind::kComm, "comm"},
           {BenchKind::kStep, "step"}}};
}
std::string_view name_of(BenchKind kind);

struct BenchConfig {
  BenchKind kind = BenchKind::kGemm;
  std::optional<std::string> json;
  std::string commit;  // for the results; default: the program's
  std::string name;    // the case's name in the results; default: the measurement's
  int64_t repeats = 20;
  double seconds = 0.5;
  bool warm_cache = false;
  bool tune = false;                              // gemm
  std::vector<std::string> shapes;                // gemm: "M,N,K"
  std::vector<int64_t> sizes;                     // comm: bytes
  std::optional<std::string> transformer_engine;  // ops: its library
  int64_t warm_up = 10, steps = 20;               // step
  std::optional<double> launch_time;              // step: seconds since 1970
  bool ceiling = true;
  std::vector<std::string> model_arguments;  // flags of pretrain_gpt
};

/// Reads the arguments after "bench". @throw ConfigError with all mistakes in them, including those of the model
/// @param world_size  ranks that a launcher has started
BenchConfig parse_bench(const std::vector<std::string>& args, int world_size);
/// The model and its layout, its vocabulary included. Data are mock data unless the arguments name data.
/// @throw ConfigError, NotSupported as pretrain_gpt does
PretrainConfig pretrain_config_of(const BenchConfig& config, int world_size);
/// The arguments for pretrain_gpt: the given ones, and defaults for the others.
std::vector<std::string> arguments_of(const BenchConfig& config);
/// True if the arguments name data.
bool names_data(const std::vector<std::string>& model_arguments);
/// The matmuls of --shapes. @throw ConfigError with all mistakes
std::vector<LinearShape> linear_shapes_of(const BenchConfig& config);
/// Sizes of --sizes, or from 1 KiB to 64 MiB in steps of four.
std::vector<int64_t> message_bytes_of(const BenchConfig& config);
/// For a device whose last cache is of this size.
MeasureOptions measure_options_of(const BenchConfig& config, int64_t cache_bytes);
std::string bench_help(const std::vector<std::string>& args);

}  // namespace megatron
