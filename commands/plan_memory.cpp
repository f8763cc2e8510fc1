#include "commands/plan_memory.h"

#include <fmt/core.h>

#include <iterator>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>

#include "commands/bench/bench_config.h"
#include "commands/run_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/field.h"
#include "megatron/base/flag_parser.h"
#include "megatron/core/cuda_stream.h"
#include "megatron/core/host_memory_limit.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/planning/expert_room.h"
#include "megatron/training/planning/host_tables.h"
#include "megatron/training/planning/memory_advice.h"
#include "megatron/training/planning/step_plan.h"

namespace megatron {
namespace {

constexpr std::string_view kIntroduction =
    R"(usage: megatron plan --memory [--gpu-memory GIB] [flags of pretrain_gpt]

Says what the fullest rank of a run will hold on its GPU, by steps of the model without data or device, and whether it fits.
If not, it names flags that would make it fit. Nothing is trained, and no GPU is needed.

  megatron plan --memory --gpu-memory 80 --nproc-per-node 8 --tensor-model-parallel-size 2 --sequence-parallel
      --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
      --num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
      --untie-embeddings-and-output-weights --vocab-size 128255 --seq-length 8192 --micro-batch-size 1
      --global-batch-size 64 --bf16 --use-distributed-optimizer

--nproc-per-node is the number of all GPUs here, on hosts of eight. The other flags are those of 'megatron bench step'.

)";

constexpr int64_t kMebibyte = int64_t{1} << 20, kGibibyte = int64_t{1} << 30;
/// Measured on an H200, CUDA 13.0, NCCL 2.28: beside what is planned to the byte.
constexpr int64_t kContextBytes = 518 * kMebibyte, kCodeBytes = 160 * kMebibyte, kCommunicatorBytes = 700 * kMebibyte;
constexpr int kGpusOfHost = 8;

struct MemoryFlags {
  bool memory = false;
  double gpu_memory = 80;
};

FieldTable describe(MemoryFlags& flags) {
  FieldTable table;
  table.begin_group("Memory", "Flags of this command.");
  table.add("memory", flags.memory, "plan the GPU memory of a run");
  table.add("gpu_memory", flags.gpu_memory, "memory of each GPU").in("GiB").above(0).at_most(1e6);
  return table;
}

RankPlaces places_of(const PretrainConfig& config) {
  std::vector<RankPlace> places;
  for (int64_t rank = 0; rank < config.parallel.world_size; ++rank) {
    const std::string host = fmt::format("host {}", rank / kGpusOfHost);
    places.push_back({.host = host, .host_name = host, .gpu = std::to_string(rank % kGpusOfHost), .out_of_reach = {}});
  }
  return RankPlaces(std::move(places));
}

struct RankPlan {
  int rank = 0;
  MemoryPlan memory;
  GpuMemory gpu;
  int64_t bytes() const { return planned_gpu_bytes(memory, gpu); }
};

RankPlan plan_of_rank(const PretrainConfig& config, int64_t rank, double gpu_memory) {
  RankPlan plan{.rank = static_cast<int>(rank), .memory = {}, .gpu = {}};
  plan.memory =
      plan_steps(config, plan.rank, kHasCuda ? DeviceKind::kCuda : DeviceKind::kCpu, places_of(config)).memory;
  plan.gpu = {.total = static_cast<int64_t>(gpu_memory * static_cast<double>(kGibibyte)),
              .in_use = kContextBytes,
              .libraries = kCodeBytes + plan.memory.num_communicators * kCommunicatorBytes};
  return plan;
}

/// Returns the plan of the first or the last pipeline stage, which have the embedding and the output layer.
RankPlan fullest_plan(const PretrainConfig& config, double gpu_memory) {
  RankPlan first = plan_of_rank(config, 0, gpu_memory);
  if (config.parallel.pipeline_model_parallel_size == 1) return first;
  RankPlan last = plan_of_rank(config, config.parallel.world_size - 1, gpu_memory);
  return last.bytes() > first.bytes() ? last : first;
}

PretrainConfig config_of(const std::vector<std::string>& model) {
  return pretrain_config_of({.kind = BenchKind::kStep, .commit = {}, .name = {}, .model_arguments = model}, 1);
}

ConfigWithFlags with_flags_of(const std::vector<std::string>& model) {
  return [model](const std::string& flags) -> std::optional<PretrainConfig> {
    std::vector<std::string> words = model;
    std::istringstream more(flags);
    std::copy(std::istream_iterator<std::string>(more), {}, std::back_inserter(words));
    try {
      return config_of(words);
    } catch (const Error&) {  // what the flags contradict
      return std::nullopt;
    }
  };
}

}  // namespace

void show_memory_plan(const std::vector<std::string>& args, std::ostream& out) {
  MemoryFlags flags;
  FieldTable table = describe(flags);
  const SplitArguments arguments = split_arguments(table, args);
  Mistakes mistakes;
  parse_flags(table, arguments.own, {.synonyms = flag_synonyms()}, mistakes);
  PretrainConfig config;
  try {
    config = config_of(arguments.model);
  } catch (const ConfigError& error) {
    mistakes.add({}, "{}", reason_of(error));
  }
  mistakes.throw_if_any("the flags are wrong");
  require_host_tables_fit(host_tables(config, false), 1, host_memory_for_arenas());
  const auto bytes_of = [&](const PretrainConfig& run) { return fullest_plan(run, flags.gpu_memory).bytes(); };
  const auto total = static_cast<int64_t>(flags.gpu_memory * static_cast<double>(kGibibyte));
  config = with_expert_room(config, [&](const PretrainConfig& run) { return bytes_of(run) <= total; });
  const RankPlan plan = fullest_plan(config, flags.gpu_memory);
  if (const std::string text = expert_room_text(config); !text.empty()) out << text << '\n';
  out << memory_table(plan.memory, plan.gpu, plan.rank) << '\n';
  if constexpr (!kHasCuda) out << "This build has no CUDA: workspaces are those of the kernels of the CPU.\n";
  if (plan.bytes() <= total)
    out << fmt::format("It fits in {:g} GiB.\n", flags.gpu_memory);
  else
    out << fmt::format("It does not fit in {:g} GiB.\n", flags.gpu_memory)
        << memory_advice(config, with_flags_of(arguments.model), bytes_of, total) << '\n';
}

std::string plan_memory_help(const std::vector<std::string>& args) {
  MemoryFlags flags;
  const FieldTable table = describe(flags);
  return help_text({.command = "megatron plan --memory",
                    .introduction = std::string(kIntroduction),
                    .table = table,
                    .more_about_word = flags_of_training_about,
                    .about_other_flag = help_of_training_flag},
                   args);
}

}  // namespace megatron
