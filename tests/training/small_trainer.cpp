#include "tests/training/small_trainer.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "megatron/core/copy.h"
#include "megatron/training/vocab.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

constexpr int64_t kVocabulary = 61;

constexpr const char* kCommon =
    "--num-layers 3 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
    "--micro-batch-size 2 --global-batch-size 4 --train-iters 100 --lr 1e-2 --lr-decay-style constant "
    "--vocab-size 61 --make-vocab-size-divisible-by 16 --tokenizer-type NullTokenizer --mock-data ";
constexpr const char* kLlama =
    "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu --ffn-hidden-size 48 "
    "--group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights ";

void append_sample(MicroBatch<int64_t>& batch, int64_t number, int64_t s, int64_t vocab_size) {
  const RandomKey key = RandomKey::from_seed(77).at("sample").at(number);
  const auto draw = [&](int64_t index) { return uniform(key, index); };
  const auto start = static_cast<int64_t>(draw(0) * static_cast<double>(vocab_size)),
             stride = 1 + static_cast<int64_t>(draw(1) * 3);
  for (int64_t i = 0; i < s; ++i) {
    const float mask = draw(2 + i) < 0.1 ? 0.0F : 1.0F;
    batch.tokens.push_back((start + i * stride) % vocab_size);
    batch.labels.push_back((start + (i + 1) * stride) % vocab_size);
    batch.position_ids.push_back(i);
    batch.loss_mask.push_back(mask);
    batch.num_valid_tokens += mask != 0;
  }
  ++batch.num_samples;
  batch.cut_ends.push_back(static_cast<int64_t>(batch.cuts.size()));
  batch.sample_indices.push_back(number);
}

void append(Trainer& trainer, std::vector<double>& all, const Tensor& x) {
  if (!x.defined() || trainer.device().is_meta()) return;
  dispatch_floating(x.dtype(), [&]<class T>() {
    for (const T value : read_values<T>(trainer.device(), x)) all.push_back(static_cast<double>(value));
  });
}

}  // namespace

std::string gpt2_like(const std::string& extra) { return kCommon + extra; }

std::string llama_like(const std::string& extra) { return std::string(kCommon) + kLlama + extra; }

PretrainConfig small_config(const std::string& line, int num_ranks) {
  std::istringstream text(line);
  PretrainConfig config =
      parse_pretrain_gpt({std::istream_iterator<std::string>(text), {}}, num_ranks, {}, RuleSet::kMegatron);
  require_runnable(config);
  set_vocab_size(config, kVocabulary);
  return config;
}

std::string golden_checkpoints() { return golden_path("checkpoint/"); }

std::string golden_words(const std::string& folder) {
  const std::string file = "checkpoint/" + folder + "/case.json";
  const nlohmann::json sizes = golden_json(file, "sizes");
  const auto size = [&](const char* key) { return sizes.at(key).get<int64_t>(); };
  std::string line = fmt::format(
      "--num-layers {} --hidden-size {} --num-attention-heads {} --kv-channels {} --seq-length {} "
      "--max-position-embeddings {} --vocab-size {} --padded-vocab-size {} --micro-batch-size 1 --global-batch-size 4 "
      "--train-iters 50 --lr 0.01 --min-lr 0.001 --lr-decay-style cosine --lr-warmup-iters 1 --weight-decay 0.1 --bf16 "
      "--tokenizer-type NullTokenizer --mock-data --load {}{}/saved",
      size("layers"), size("h"), size("nh"), size("d"), size("seq"), size("seq"), size("vocab"),
      golden_json(file, "padded_vocab").get<int64_t>(), golden_checkpoints(), folder);
  const bool has_experts = folder.find("moe") != std::string::npos;
  if (has_experts || golden_json(file, "model") == "llama")
    line += fmt::format(
        " --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu "
        "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups {} --ffn-hidden-size {}",
        size("ng"), size("f"));
  if (folder.find("mla") != std::string::npos)
    line += fmt::format(
        " --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu --qk-layernorm "
        "--untie-embeddings-and-output-weights --ffn-hidden-size {} --multi-latent-attention --q-lora-rank 10 "
        "--kv-lora-rank 14 --qk-head-dim 6 --qk-pos-emb-head-dim 4 --v-head-dim 8 --rope-type rope",
        size("f"));
  if (has_experts)
    line += fmt::format(
        " --num-experts {} --moe-router-topk 2 --moe-ffn-hidden-size {} --moe-shared-expert-intermediate-size {}",
        size("experts"), size("fe"), size("fs"));
  if (folder.find("moemix") != std::string::npos) line += " --moe-layer-freq [0,1]";
  if (folder.starts_with("core016")) line += " --no-load-optim";  // its schedule holds three of the ten entries
  return line;
}

int64_t golden_iteration(const std::string& folder) {
  return golden_json("checkpoint/" + folder + "/case.json", "iteration").get<int64_t>();
}

std::vector<MicroBatch<int64_t>> batches_of(const PretrainConfig& config, int64_t step, int64_t dp_rank,
                                            const std::vector<int64_t>& order) {
  const int64_t size = config.training.micro_batch_size.value(), all = config.training.global_batch_size.value();
  std::vector<MicroBatch<int64_t>> batches;
  for (int64_t i = dp_rank * size; i < all; i += config.parallel.data_parallel_size * size) {
    batches.emplace_back().sequence_length = config.model.seq_length.value();
    for (int64_t k = i; k < i + size; ++k)
      append_sample(batches.back(), step * all + (order.empty() ? k : order[static_cast<size_t>(k)]),
                    batches.back().sequence_length, config.transformer.vocab_size);
    batches.back().consumed_samples = step * all + i + size;
  }
  return batches;
}

MicroBatch<int64_t> sample_of(const std::vector<int64_t>& tokens_and_last_label, const std::vector<int32_t>& cuts) {
  MicroBatch<int64_t> batch;
  batch.num_samples = 1;
  batch.sequence_length = batch.num_valid_tokens = static_cast<int64_t>(tokens_and_last_label.size()) - 1;
  batch.tokens.assign(tokens_and_last_label.begin(), tokens_and_last_label.end() - 1);
  batch.labels.assign(tokens_and_last_label.begin() + 1, tokens_and_last_label.end());
  batch.loss_mask.assign(batch.tokens.size(), 1.0F);
  batch.cuts = cuts;
  batch.cut_ends = {static_cast<int64_t>(cuts.size())};
  int64_t begin = 0;
  for (int64_t i = 0; i < batch.sequence_length; ++i) {
    if (std::find(cuts.begin(), cuts.end(), i) != cuts.end()) begin = i;
    batch.position_ids.push_back(i - begin);
  }
  return batch;
}

std::vector<double> train(Trainer& trainer, int64_t begin, int64_t end) {
  std::vector<double> losses;
  for (int64_t step = begin; step < end; ++step)
    losses.push_back(trainer.train_step(batches_of(trainer.config(), step, trainer.groups().dp.rank())).loss.mean());
  return losses;
}

std::vector<double> weights_of(Trainer& trainer) {
  std::vector<double> all;
  for (const Parameter* parameter : trainer.model().parameters()) append(trainer, all, parameter->value());
  return all;
}

std::vector<double> gradients_of(Trainer& trainer) {
  std::vector<double> all;
  for (Parameter* parameter : trainer.model().parameters()) append(trainer, all, parameter->main_grad());
  return all;
}

std::vector<double> optimizer_state_of(Trainer& trainer) {
  std::vector<double> all;
  for (const OptimizerState& state : trainer.optimizer().states()) {
    append(trainer, all, trainer.optimizer().main_params(trainer.context(), state));
    for (const Tensor* tensor : {&state.exp_avg, &state.exp_avg_sq}) append(trainer, all, *tensor);
  }
  return all;
}

}  // namespace megatron::testing
