// Builds a small GPT from parts and trains it, without the command line: what an own training loop looks like.
//   cmake --install build --prefix PREFIX
//   cmake -S examples -B build/own -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build/own && build/own/simple_train_loop
#include <algorithm>
#include <cstdio>
#include <thread>

#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/models/gpt/gpt_model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"

using namespace megatron;

namespace {

constexpr int64_t kSequence = 32, kBatch = 8, kVocabulary = 64;
constexpr int kMicroBatches = 2, kSteps = 60;

TransformerConfig small_llama() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.ffn_hidden_size = 192;
  config.num_attention_heads = 4;
  config.num_query_groups = 2;
  config.kv_channels = 16;
  config.vocab_size = config.padded_vocab_size = kVocabulary;
  config.max_sequence_length = kSequence;
  config.normalization = Normalization::kRMSNorm;
  config.position_embedding_type = PositionEmbeddingType::kRope;
  config.activation_func = ActivationFunc::kSilu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.share_embeddings_and_output_weights = false;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

/// Sequences that count upwards in steps of 1 to 4: the next token follows from the two before.
Batch make_batch(const Context& ctx, int64_t first_sample) {
  const auto empty = [&](const char* name, DType dtype) {
    return ctx.empty(name, {kSequence, kBatch}, dtype, MemoryUse::kData);
  };
  Tensor tokens = empty("tokens", DType::kInt64), labels = empty("labels", DType::kInt64);
  Tensor loss_mask = empty("loss_mask", DType::kFloat32);
  for (int64_t i = 0; i < kSequence * kBatch; ++i) {
    const int64_t row = i / kBatch, sample = first_sample + i % kBatch;
    const auto start = static_cast<int64_t>(uniform(ctx.key.at("start"), sample) * kVocabulary);
    const auto stride = 1 + static_cast<int64_t>(uniform(ctx.key.at("stride"), sample) * 4);
    tokens.data<int64_t>()[i] = (start + row * stride) % kVocabulary;
    labels.data<int64_t>()[i] = (start + (row + 1) * stride) % kVocabulary;
    loss_mask.data<float>()[i] = 1;
  }
  const SequenceLayout::Options rows{.s = kSequence, .b = kBatch, .first_sample = first_sample};
  return {.tensors = {{"tokens", tokens}, {"labels", labels}, {"loss_mask", loss_mask}},
          .layouts = {{"tokens", SequenceLayout::uniform(ctx, rows)}}};
}

}  // namespace

int main() {
  Device device(DeviceKind::kCpu, {.num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))});
  StepState step;
  const Context ctx{.device = device, .step = step, .key = RandomKey::from_seed(1234)};
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  const TransformerConfig config = small_llama();

  GptModel model({.ctx = ctx, .config = config, .groups = groups, .path = ""});
  model.initialize(ctx);
  DistributedDataParallel ddp(ctx, {model.parameters()}, groups, {});
  OptimizerConfig optimizer_config;
  optimizer_config.weight_decay = 0.1;
  Optimizer optimizer(ctx, optimizer_config, ddp);
  ParamSchedulerConfig schedule;  // counts in samples
  schedule.max_lr = 5e-3;
  schedule.lr_warmup_steps = 5 * kMicroBatches * kBatch;
  schedule.lr_decay_steps = kSteps * kMicroBatches * kBatch;
  schedule.start_wd = schedule.end_wd = optimizer_config.weight_decay;
  ParamScheduler scheduler(schedule);

  double first_loss = 0, loss = 0;
  for (int iteration = 0; iteration < kSteps; ++iteration) {
    std::vector<Batch> batches;
    for (int m = 0; m < kMicroBatches; ++m)
      batches.push_back(make_batch(ctx, (iteration * kMicroBatches + m) * kBatch));
    step.step = iteration;
    const double loss_seed = 1.0 / (kMicroBatches * kBatch * kSequence);  // 1 / tokens of the global batch
    optimizer.begin_step(ctx, scheduler, loss_seed, step);

    loss = 0;
    ddp.begin_step();
    const ExecutorOptions options{
        .chunks = model.chunks([&](int m) -> const Batch& { return batches[static_cast<size_t>(m)]; }),
        .losses = model.losses()};
    Executor executor(ctx, options);
    executor.on_output = [&](const Payload& output, int) {
      loss += *at(output, "lm loss").data<double>() * step.loss_seed;
    };
    executor.run(one_f_one_b(0, 1, kMicroBatches, WeightGradient::kFused));
    ddp.finish_grad_sync();
    Readback readback;
    const StepResult result = optimizer.step(ctx, readback);
    scheduler.step(kMicroBatches * kBatch);

    if (iteration == 0) first_loss = loss;
    if (iteration % 10 == 9)
      std::printf("step %3d | loss %.4f | gradient norm %.3f\n", iteration + 1, loss, result.grad_norm);
  }
  return loss < 0.5 * first_loss ? 0 : 1;  // it has learned
}
