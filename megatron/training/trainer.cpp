#include "megatron/training/trainer.h"

#include <algorithm>

#include "megatron/context_parallel/context_attention.h"
#include "megatron/core/copy.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/planning/theoretical_flops.h"
#include "megatron/training/startup/matmul_precision.h"

namespace megatron {
namespace {

std::optional<int64_t> graph_warm_up_steps_of(const PretrainConfig& config) {
  if (!config.cuda_graph.records()) return std::nullopt;
  return config.cuda_graph.warmup_steps;
}

/// The documents of a sample for which memory is planned, however many there are; 0 if documents are not separated.
/// Conversations that ranks share are padded to a multiple of 2 * context_parallel_size tokens.
int64_t max_documents_of_sample(const PretrainConfig& config) {
  if (!config.data.separates_documents()) return 0;
  const int64_t cp = config.parallel.context_parallel_size;
  return config.model.seq_length.value() / (config.data.sft && cp > 1 ? 2 * cp : 1);
}

/// The context-parallel layout of a rank of `group`, which the attention of all layers reads.
ContextLayoutOptions context_layouts_of(const PretrainConfig& config, const ProcessGroup& group) {
  ContextLayoutOptions options{.cut = {.rank = group.rank(), .size = group.size(), .length = 0},
                               .gathers_keys = false,
                               .num_head_ranks = {},
                               .splits_keys = config.transformer.attention_dropout > 0,
                               .max_documents = max_documents_of_sample(config)};
  const auto& levels = config.parallel.hierarchical_context_parallel_sizes;
  for (const CpCommType type : config.transformer.cp_comm_type) {
    const int64_t number = ContextAttention::num_head_ranks(type, group.size(), levels ? levels->at(0) : 1);
    const bool is_known = std::ranges::count(options.num_head_ranks, number) > 0;
    if (type == CpCommType::kAllGather)
      options.gathers_keys = true;
    else if (!is_known)
      options.num_head_ranks.push_back(number);
  }
  return options;
}

std::optional<HybridContextOptions> hybrid_context_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.hybrid_context_parallel) return std::nullopt;
  return HybridContextOptions{.max_seqlen_per_rank = parallel.max_seqlen_per_dp_cp_rank.value(),
                              .row_multiple = parallel.sequence_parallel ? parallel.tensor_model_parallel_size : 1};
}

/// Groups of ranks on GPUs know its stream before their first operation. They connect while the model is built.
std::unique_ptr<Device> make_device(const Trainer::Options& options, const PrecisionConfig& precision) {
  const bool is_cuda = options.device == DeviceKind::kCuda;
  require<NotSupported>(!is_cuda || options.groups.world.size() == 1 || options.gpu_ranks,
                        "[Trainer] {} ranks on GPUs need groups that follow the GPU's stream, those of an NcclWorld. "
                        "Train with one rank, or on the CPU (--device cpu).",
                        options.groups.world.size());
  auto device = std::make_unique<Device>(options.device, Device::Options{.num_threads = options.num_threads,
                                                                         .capacity_bytes = options.capacity_bytes,
                                                                         .record_events = options.record_events,
                                                                         .guard = options.guard,
                                                                         .cuda_device = options.cuda_device,
                                                                         .meta_of = options.meta_of});
  prepare_matmuls(*device, precision, options.matmul_choices);
  if (is_cuda && options.gpu_ranks) {
    options.gpu_ranks->set_compute_stream(device->cuda_stream().stream);
    options.gpu_ranks->connect(options.connections);
  }
  return device;
}

}  // namespace

Trainer::Trainer(const PretrainConfig& config, const Options& options)
    : config_(config),
      groups_(options.groups),
      device_(make_device(options, config.precision)),
      step_state_(*device_),
      ctx_{.device = *device_,
           .step = step_state_.get(),
           .key = RandomKey::from_seed(static_cast<uint64_t>(config.training.seed))},
      model_(config_.family.make_model({.ctx = ctx_,
                                        .config = config_.transformer,
                                        .groups = groups_,
                                        .path = "",
                                        .sequence_parallel = config_.parallel.sequence_parallel,
                                        .overlap = tensor_comm_overlap_of(config_)},
                                       pipeline_layout_of(config_), config_.family.options)),
      ddp_(ctx_, model_->stage_parameters(), groups_, data_parallel_config_of(config_)),
      optimizer_(ctx_, config_.optimizer, ddp_),
      scheduler_(param_scheduler_config_of(config_)),
      step_(ctx_, *model_, ddp_, optimizer_, options.device == DeviceKind::kCuda ? options.gpu_ranks : nullptr,
            {.calculate_per_token_loss = config_.training.calculate_per_token_loss,
             .has_positions = config_.data.resets_positions(),
             .context = context_layouts_of(config_, groups_.cp),
             .hybrid_context = hybrid_context_of(config_),
             .schedule = schedule_options_of(config_),
             .num_graph_warm_up_steps = graph_warm_up_steps_of(config_)}) {
  write_value(*device_, StepState{}, &ctx_.step);
  if (!config_.transformer.perform_initialization) return;
  model_->initialize(ctx_);
  optimizer_.reload_main_params(ctx_);
}

TrainStepResult Trainer::train_step(const MicroBatches& batches, Timers* timers, const StepExamination* examination) {
  TrainStepResult result = step_.run(batches, scheduler_, progress_.iteration, timers, examination);
  int64_t num_samples = 0;
  for (size_t m = 0; m < batches.size(); ++m) num_samples += batches[m].num_samples * groups_.dp.size();
  if (result.optimizer.success) scheduler_.step(num_samples);
  ++progress_.iteration;
  progress_.consumed_train_samples += num_samples;
  progress_.num_floating_point_operations +=
      theoretical_flops(config_.transformer, num_samples, batches[0].sequence_length);
  return result;
}

}  // namespace megatron
