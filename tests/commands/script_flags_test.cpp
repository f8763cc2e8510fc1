// Command lines of Megatron-LM's scripts, with small sizes: each is accepted unchanged, and trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

/// The flags that most scripts begin with.
std::string model(const std::string& more) {
  return "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16"
         " --train-iters 2 --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0"
         " --lr-warmup-fraction .01 --lr-decay-iters 320000 --log-interval 1 --eval-interval 1000 --eval-iters 1"
         " --mock-data --tokenizer-type NullTokenizer --vocab-size 127 --split 949,50,1 --use-mcore-models"
         " --transformer-impl transformer_engine --attention-backend unfused --distributed-backend nccl --num-threads "
         "1 " +
         more;
}

struct Script {
  std::string name, flags;
};
void PrintTo(const Script& script, std::ostream* out) { *out << script.name; }

class ScriptFlags : public ::testing::TestWithParam<Script> {};

TEST_P(ScriptFlags, AreAcceptedAsTheyAreAndTrain) {
  const ScratchDirectory scratch;
  std::string line = model(GetParam().flags);
  for (size_t at = line.find('@'); at != std::string::npos; at = line.find('@', at))
    line.replace(at, 1, scratch.path());
  const Outcome outcome = run(Command::kPretrainGpt, words_of(line));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("iteration        2/       2 |"));
}

INSTANTIATE_TEST_SUITE_P(
    All, ScriptFlags,
    ::testing::Values(
        Script{
            "one rank",
            "--micro-batch-size 4 --global-batch-size 8 --bf16 --log-params-norm --log-num-zeros-in-grad"
            " --log-validation-ppl-to-tensorboard --log-timers-to-tensorboard --log-memory-to-tensorboard"
            " --tensorboard-dir @/tb --timing-log-level 2 --save @/c --load @/c --save-interval 50"
            " --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --ckpt-format torch_dist"
            " --data-cache-path @/cache --deterministic-mode --no-check-for-nan-in-loss-and-grad --logging-level 40"},
        Script{"tensor parallel",
               "--micro-batch-size 2 --global-batch-size 8 --tensor-model-parallel-size 2 --sequence-parallel"
               " --nproc-per-node 4 --nnodes 1 --node-rank 0 --master-addr localhost --master-port 29500"
               " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --bf16 --hidden-dropout 0.0"
               " --attention-dropout 0.0 --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion"
               " --check-weight-hash-across-dp-replicas-interval 10 --use-flash-attn --test-mode --qk-layernorm"},
        Script{
            "pipeline with virtual stages",
            "--micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 2 --nproc-per-node 4"
            " --virtual-pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce"
            " --ddp-num-buckets 2 --defer-embedding-wgrad-compute --wgrad-deferral-limit 2 --calculate-per-token-loss"
            " --overlap-p2p-communication-warmup-flush --untie-embeddings-and-output-weights"},
        Script{"uneven pipeline",
               "--micro-batch-size 1 --global-batch-size 4 --pipeline-model-parallel-size 2 --nproc-per-node 2"
               " --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3 --decoupled-lr 0.0002"
               " --decoupled-min-lr 2e-5 --swiglu --disable-bias-linear --cross-entropy-loss-fusion"},
        Script{"Llama",
               "--micro-batch-size 1 --global-batch-size 4 --tensor-model-parallel-size 2 --nproc-per-node 2"
               " --position-embedding-type rope --rotary-base 500000 --rotary-percent 1.0 --swiglu --normalization"
               " RMSNorm --norm-epsilon 1e-5 --num-query-groups 2 --ffn-hidden-size 48 --init-method-std 0.01 --bf16"
               " --untie-embeddings-and-output-weights --disable-bias-linear --no-rope-fusion --recompute-activations"
               " --grad-reduce-in-bf16 --manual-gc --exit-duration-in-mins 230 --exit-signal-handler"},
        Script{"recompute",
               "--micro-batch-size 1 --global-batch-size 4 --recompute-granularity full --recompute-method uniform"
               " --recompute-num-layers 1 --adam-beta1 0.9 --adam-beta2 0.95 --use-checkpoint-opt_param-scheduler"
               " --no-mmap-bin-files --num-workers 2 --empty-unused-memory-level 1 --init-method-std 0.02"},
        Script{"checks of results",
               "--micro-batch-size 1 --global-batch-size 4 --rerun-mode validate_results --check-for-spiky-loss"
               " --check-for-large-grads --error-injection-rate 1000000 --error-injection-type persistent_error"
               " --log-straggler --straggler-minmax-count 2 --nproc-per-node 2 --recompute-num-layers 1"
               " --disable-straggler-on-startup --straggler-ctrlr-port 47112"},
        Script{
            "logs and restarts",
            "--micro-batch-size 1 --rampup-batch-size 2 2 16 --global-batch-size 4 --wandb-project p --wandb-exp-name"
            " e --wandb-save-dir @/wandb --wandb-entity me --log-throughput --log-progress --save @/c"
            " --save-interval 2 --save-retain-interval 4 --enable-ft-package --calc-ft-timeouts"
            " --ft-num-warmup-iters 5 --no-save-optim --no-save-rng --train-sync-interval 10 "
            "--log-world-size-to-tensorboard"
            " --tensorboard-dir @/tb --tensorboard-queue-size 5"},
        Script{"asynchronous checkpoints",
               "--micro-batch-size 1 --global-batch-size 4 --nproc-per-node 2 --use-distributed-optimizer --bf16"
               " --save @/c --load @/c --save-interval 1 --ckpt-format torch_dist --async-save"
               " --use-persistent-ckpt-worker --dist-ckpt-strictness log_all --dist-ckpt-optim-fully-reshardable"
               " --ckpt-fully-parallel-load --ckpt-assume-constant-structure --auto-detect-ckpt-format"
               " --verify-integrity --logging-level 20 --rerun-mode disabled --exit-interval 10"},
        Script{"fp16",
               "--micro-batch-size 1 --global-batch-size 4 --fp16 --loss-scale-window 100 --hysteresis 2"
               " --initial-loss-scale 4096 --apply-query-key-layer-scaling --pipeline-model-parallel-size 2"
               " --nproc-per-node 2 --account-for-embedding-in-pipeline-split --num-layers 3"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

}  // namespace
}  // namespace megatron::testing
