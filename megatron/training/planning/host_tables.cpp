#include "megatron/training/planning/host_tables.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/training/planning/theoretical_memory.h"

namespace megatron {
namespace {

constexpr double kMebibyte = 1 << 20;

/// Modules, parameters and nodes of a layer, without its tensors: a model of 20000 layers of width 8 takes 40 KiB each.
constexpr double kBytesOfLayer = 32 << 10;
/// Vectors of a micro-batch without its tokens, and its actions in the schedule: 2.5 KiB with 8 tokens.
constexpr double kBytesOfMicroBatch = 2 << 10;
/// The bytes of a token in a MicroBatch: token, label and position in 8 bytes each, and the mask.
constexpr double kBytesOfToken = 3 * sizeof(int64_t) + sizeof(float);

double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

struct Factor {
  std::string_view flag;
  int64_t count;
};

/// The flag of the largest factor, which makes the table large.
std::string flag_of_largest(std::initializer_list<Factor> factors) {
  const auto less = [](const Factor& a, const Factor& b) { return a.count < b.count; };
  return std::string(std::max_element(factors.begin(), factors.end(), less)->flag);
}

HostTable positions_of(const PretrainConfig& config) {
  const TransformerConfig& model = config.transformer;
  HostTable table{.what = "the table of positions", .flag = "--max-position-embeddings"};
  if (model.position_embedding_type == PositionEmbeddingType::kLearnedAbsolute) {
    table.flag = flag_of_largest({{table.flag, model.max_sequence_length}, {"--hidden-size", model.hidden_size}});
    table.bytes = product(model.max_sequence_length, model.hidden_size) *
                  static_cast<double>(parameter_bytes_of(config).weight_and_gradient);
  }
  if (model.has_rotary_positions())
    table.bytes += product(model.max_sequence_length, model.rotary_channels()) * model.rotary_percent *
                   static_cast<double>(size_of(model.params_dtype));
  return table;
}

}  // namespace

std::vector<HostTable> host_tables(const PretrainConfig& config, bool is_on_cpu) {
  const int64_t micro_batch_size = config.training.micro_batch_size.value(),
                seq_length = config.model.seq_length.value(),
                global_batch_size = config.training.global_batch_size.value(),
                num_microbatches = global_batch_size / (micro_batch_size * config.parallel.data_parallel_size);
  std::vector<HostTable> tables = {
      {.what = fmt::format("{} layers", config.transformer.num_layers),
       .flag = "--num-layers",
       .bytes = static_cast<double>(config.transformer.num_layers) /
                static_cast<double>(config.parallel.pipeline_model_parallel_size) * kBytesOfLayer},
      {.what = fmt::format("{} micro-batches of a step", num_microbatches),
       .flag = flag_of_largest({{"--global-batch-size", num_microbatches},
                                {"--micro-batch-size", micro_batch_size},
                                {"--seq-length", seq_length}}),
       .bytes = static_cast<double>(num_microbatches) *
                (kBytesOfMicroBatch + product(micro_batch_size, seq_length) * kBytesOfToken)}};
  if (is_on_cpu) tables.push_back(positions_of(config));
  return tables;
}

void require_host_tables_fit(const std::vector<HostTable>& tables, int64_t ranks_here, int64_t host_bytes) {
  constexpr double kPartThatCounts = 0.1;
  double need = 0;
  for (const HostTable& table : tables) need += table.bytes * static_cast<double>(ranks_here);
  if (need <= static_cast<double>(host_bytes)) return;
  std::string flags, lines;
  for (const HostTable& table : tables) {
    const double bytes = table.bytes * static_cast<double>(ranks_here);
    if (bytes < kPartThatCounts * static_cast<double>(host_bytes)) continue;
    lines += fmt::format("\n  {:.0f} MiB for {} ({})", bytes / kMebibyte, table.what, table.flag);
    flags += (flags.empty() ? "" : " or ") + table.flag;
  }
  throw OutOfMemory(
      fmt::format("The memory of the host does not hold the tables of this run: {:.0f} MiB on {} rank{}, and {:.0f} "
                  "MiB are there for them.{}\nGive a smaller {}.",
                  need / kMebibyte, ranks_here, ranks_here == 1 ? "" : "s", static_cast<double>(host_bytes) / kMebibyte,
                  lines, flags));
}

}  // namespace megatron
