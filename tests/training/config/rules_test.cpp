// Rules that the golden cases do not reach, or that are stricter than Megatron's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "megatron/core/arena.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::parse;
using testing::refusal;
using testing::with;
using testing::Words;
using testing::words_of;

struct Refused {
  Words extra;
  std::string text;
  int world_size = 1;
};

/// A dense model has no experts: no rule of their grid rejects its layout.
TEST(Rules, LetADenseModelNumberItsStagesBeforeReplicasWithContextParallelism) {
  for (const char* more : {"", " --expert-tensor-parallel-size 4"}) {
    const ParallelLayout layout = parallel_layout_of(
        parse(words_of("--tensor-model-parallel-size 2 --context-parallel-size 2 --pipeline-model-parallel-size 2 "
                       "--sequence-parallel --use-tp-pp-dp-mapping --global-batch-size 8" +
                       std::string(more)),
              16));
    EXPECT_EQ(layout.groups(GroupKind::kPp).front(), (std::vector<int>{0, 4}));
    EXPECT_EQ(layout.groups(GroupKind::kDp).front(), (std::vector<int>{0, 8}));
  }
}

TEST(Rules, RefuseContradictionsWithTheReason) {
  const std::vector<Refused> cases{
      {{"--num-layers", "12", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "4"},
       "12 layers",
       2},
      {{"--quick-geglu", "--squared-relu", "--no-bias-gelu-fusion"}, "2 activations are given"},
      {{"--qk-layernorm", "--qk-l2-norm"}, "exclude each other"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.5"},
       "--optimizer-offload-fraction 1.5: must be at most 1"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "-0.1"},
       "--optimizer-offload-fraction -0.1: must be at least 0"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "half"}, "--optimizer-offload-fraction"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "nan"}, "--optimizer-offload-fraction"},
      {{"--use-torch-optimizer-for-cpu-offload"}, "offloading to the host"},
      {{"--fine-grained-activation-offloading"}, "needs --offload-modules"},
      {{"--offload-modules", "core_attn"}, "--offload-modules goes with --fine-grained-activation-offloading only"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "attn_proj"}, "attn_proj needs core_attn too"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "expert_fc1"}, "give --num-experts"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "lm_head"}, "lm_head"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "core_attn", "--min-offloaded-tensor-size", "-1"},
       "--min-offloaded-tensor-size -1: must be at least 0"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "core_attn", "--cpu-offloading-num-layers", "1"},
       "and --cpu-offloading-num-layers exclude each other"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "core_attn", "--recompute-granularity", "full",
        "--recompute-method", "uniform", "--recompute-num-layers", "1"},
       "and --recompute-granularity full exclude each other"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "core_attn", "--cuda-graph-impl",
        "full_iteration"},
       "--cuda-graph-impl and activations on the host exclude each other"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "moe_act", "--num-experts", "4",
        "--recompute-granularity", "selective", "--recompute-modules", "moe"},
       "--offload-modules moe_act and --recompute-modules moe exclude each other"},
      {{"--cpu-offloading-num-layers", "-1"}, "--cpu-offloading-num-layers -1: must be at least 0"},
      {{"--cpu-offloading-num-layers", "4"}, "--cpu-offloading-num-layers 4 must be below --num-layers 4"},
      {{"--cpu-offloading-num-layers", "1", "--pipeline-model-parallel-size", "2"},
       "--cpu-offloading-num-layers 1 and --pipeline-model-parallel-size 2 exclude each other",
       2},
      {{"--cpu-offloading-num-layers", "1", "--recompute-activations"}, "1 and recompute exclude each other"},
      {{"--cpu-offloading-num-layers", "1", "--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1"},
       "1 and recompute exclude each other"},
      {{"--cpu-offloading-num-layers", "1", "--cuda-graph-impl", "full_iteration"},
       "--cuda-graph-impl and activations on the host exclude each other"},
      {{"--geglu", "--swiglu"}, "2 activations are given"},
      {{"--layernorm-placement", "sandwich"}, "--layernorm-placement needs --disable-bias-linear"},
      {{"--residual-multiplier", "0.5"}, "--residual-multiplier needs --disable-bias-linear"},
      {{"--attn-logit-softcapping", "0"}, "--attn-logit-softcapping 0: must be above 0"},
      {{"--recompute-granularity", "selective", "--recompute-modules", "mla_up_proj"},
       "--recompute-modules mla_up_proj needs --multi-latent-attention"},
      {{"--multi-latent-attention", "--attention-output-gate"}, "it has no projection that gives the gates"},
      {{"--multi-latent-attention", "--softmax-scale", "0.5"}, "--multi-latent-attention and --softmax-scale exclude"},
      {{"--multi-latent-attention", "--qk-layernorm", "--qk-layernorm-across-heads"}, "normalises its latent vectors"},
      {{"--multi-latent-attention", "--sliding-window-rotary-base", "100"}, "its layers rotate with one table"},
      {{"--sliding-window-rotary-base", "100", "--window-size", "4,0", "--position-embedding-type", "rope",
        "--mtp-num-layers", "1"},
       "further tokens have one table of positions"},
      {{"--qk-layernorm", "--qk-layernorm-across-heads", "--num-query-groups", "1", "--tensor-model-parallel-size",
        "2"},
       "which --qk-layernorm-across-heads takes together",
       2},
      {{"--cudnn-attention-dropout"}, "--cudnn-attention-dropout needs --bf16 or --fp16"},
      {{"--bf16", "--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"}, "exclude each other"},
      {{"--swiglu", "--hidden-size", "20"}, "leaves 0 at --hidden-size 20"},
      {{"--position-embedding-type", "yarn", "--rotary-percent", "0.45"}, "7 of 16 values of a head would rotate"},
      {{"--position-embedding-type", "rope", "--rotary-percent", "0.05"}, "0 of 16 values of a head would rotate"},
      {{"--position-embedding-type", "rope", "--kv-channels", "9"}, "9 of 9 values of a head would rotate"},
      {{"--multi-latent-attention", "--num-query-groups", "2"},
       "--multi-latent-attention and --group-query-attention exclude each other"},
      {{"--multi-latent-attention", "--rotary-interleaved"}, "it always rotates pairs of neighbours"},
      {{"--multi-latent-attention", "--position-embedding-type", "yarn"}, "give --rope-type yarn"},
      {{"--multi-latent-attention", "--position-embedding-type", "rope", "--use-rope-scaling"},
       "--multi-latent-attention and --use-rope-scaling exclude each other"},
      {{"--multi-latent-attention", "--position-embedding-type", "rope", "--rotary-seq-len-interpolation-factor", "2"},
       "--multi-latent-attention and --rotary-seq-len-interpolation-factor exclude each other"},
      {{"--multi-latent-attention", "--position-embedding-type", "rope", "--dynamic-rope-factor", "2"},
       "--multi-latent-attention and --dynamic-rope-factor exclude each other"},
      {{"--position-embedding-type", "rope", "--use-rope-scaling", "--dynamic-rope-factor", "2"},
       "--use-rope-scaling, --dynamic-rope-factor and --longrope-long-factor exclude each other"},
      {{"--position-embedding-type", "rope", "--longrope-long-factor", "1", "2"},
       "--longrope-short-factor has 0 values and --longrope-long-factor 2: each needs 8"},
      {{"--multi-latent-attention", "--no-rope-freq", "2"}, "it rotates in every layer"},
      {{"--multi-latent-attention", "--qk-l2-norm"}, "--qk-layernorm normalises its latent vectors"},
      {{"--multi-latent-attention", "--qk-pos-emb-head-dim", "7"}, "--qk-pos-emb-head-dim 7 is odd"},
      {{"--multi-latent-attention", "--rope-type", "rope", "--rotary-percent", "0.01"},
       "0 of 64 values of a head would rotate"},
      {{"--multi-latent-attention", "--kv-lora-rank", "0"}, "--kv-lora-rank 0: must be at least 1"},
      {{"--multi-latent-attention", "--rope-type", "alibi"}, "--rope-type alibi"},
      {{"--rope-type", "yarn"}, "--rope-type yarn needs --multi-latent-attention"},
      {{"--multi-latent-attention", "--mla-down-proj-fusion"}, "does not have yet"},
      {{"--mtp-num-layers", "1"}, "--mtp-num-layers needs --position-embedding-type rope or none"},
      {{"--mtp-num-layers", "32", "--position-embedding-type", "rope"}, "needs a --seq-length above it, got 32"},
      {{"--mtp-num-layers", "0", "--position-embedding-type", "rope"}, "--mtp-num-layers 0: must be at least 1"},
      {{"--mtp-num-layers", "1", "--position-embedding-type", "rope", "--mtp-loss-scaling-factor", "-1"},
       "--mtp-loss-scaling-factor -1: must be at least 0"},
      {{"--mtp-num-layers", "2", "--position-embedding-type", "rope", "--pipeline-model-parallel-size", "2",
        "--pipeline-model-parallel-layout", "Ett|ttmL"},
       "has 1 'm', but --mtp-num-layers is 2",
       2},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Ett|ttmL"},
       "has 1 'm', but --mtp-num-layers is 0",
       2},
      {{"--mtp-num-layers", "1", "--position-embedding-type", "rope", "--mtp-detach-heads"}, "does not have yet"},
      {{"--window-attn-skip-freq", "[0,1]"}, "lists 2 layers, --num-layers is 4"},
      {{"--no-rope-freq", "[0,1,0,1,0]"}, "lists 5 layers"},
      {{"--step-batch-size-schedule", "0:8 640:4"}, "batches may only grow"},
      {{"--rampup-batch-size", "8", "4"}, "--rampup-batch-size needs 3 values"},
      {{"--rampup-batch-size", "8", "5", "100", "--global-batch-size", "32"}, "does not divide by INCREMENT 5"},
      {{"--rampup-batch-size", "8", "4", "100"}, "--rampup-batch-size: START 8 must be below the global batch size 2"},
      {{"--rampup-batch-size", "3", "1", "100", "--global-batch-size", "8"}, "does not divide by micro-batch size"},
      {{"--rampup-batch-size", "4", "2", "100", "--step-batch-size-schedule", "0:2"}, "exclude each other"},
      {{"--step-batch-size-schedule", "0:4 320:6"}, "does not divide by micro-batch size", 2},
      {{"--sequence-parallel", "--tensor-model-parallel-size", "4", "--seq-length", "30"},
       "--seq-length 30 does not divide",
       4},
      {{"--tp-comm-overlap", "--tensor-model-parallel-size", "2"},
       "--tp-comm-overlap needs --sequence-parallel and a --tensor-model-parallel-size above 1, which is 2",
       2},
      {{"--tp-comm-overlap", "--sequence-parallel"}, "a --tensor-model-parallel-size above 1, which is 1"},
      {{"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size", "2", "--no-tp-comm-overlap-ag",
        "--disable-tp-comm-overlap-rs"},
       "overlap nothing: leave out one of the three, or give --tp-comm-overlap-rs-dgrad",
       2},
      {{"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size", "2",
        "--tp-comm-overlap-delay-wgrad", "--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1"},
       "--recompute-granularity full exclude each other",
       2},
      {{"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size", "2",
        "--pipeline-model-parallel-size", "2", "--tp-comm-overlap-delay-wgrad", "--pipeline-schedule", "zb-h1"},
       "--pipeline-schedule zb-h1 exclude each other",
       4},
      {{"--tp-comm-overlap-cfg", "ub.yaml"}, "give --tp-comm-overlap-ag-splits"},
      {{"--no-tp-comm-bulk-wgrad"}, "always overlaps with a matmul"},
      {{"--use-checkpoint-args"}, "--use-checkpoint-args needs --load"},
      {{"--ckpt-step", "3"}, "--ckpt-step needs --load"},
      {{"--log-progress"}, "--log-progress needs --save"},
      {{"--profile", "--profile-step-start", "7", "--profile-step-end", "7"},
       "--profile-step-start 7 must be less than --profile-step-end 7"},
      {{"--profile", "--profile-step-start", "20", "--profile-step-end", "21"},
       "--profile-step-start 20 must be less than --train-iters 20"},
      {{"--profile", "--profile-ranks", "0", "2"}, "--profile-ranks 2 must be at least 0 and less than", 2},
      {{"--profile", "--profile-ranks", "-1"}, "--profile-ranks -1 must be at least 0"},
      {{"--recompute-modules", "mlp"}, "goes with --recompute-granularity selective"},
      {{"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "5"},
       "above --num-layers 4"},
      {{"--recompute-activations", "--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1"},
       "--recompute-activations, which is --recompute-granularity selective, wins"},
      {{"--lr-warmup-iters", "20"}, "takes 20 iterations and its decay ends at iteration 20"},
      {{"--weight-decay", "-1"}, "weight decay -1 (--weight-decay) is negative"},
      {{"--num-layers", "43", "--pipeline-model-parallel-size", "2"},
       "43 layers (--num-layers 43) do not divide by 2 stages (--pipeline-model-parallel-size 2)",
       2},
      {{"--save", "", "--save-interval", "2"}, "--save '': must not be empty"},
      {{"--multiple-validation-sets"}, "needs --full-validation"},
      {{"--num-distributed-optimizer-instances", "2"}, "needs --use-distributed-optimizer"},
      {{"--tokenizer-type", "CharTokenizer"}, "needs --vocab-file"},
      {{"--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "v"}, "needs --merge-file"},
      {{"--null-tokenizer-eod-id", "100"}, "is not below --vocab-size"},
      {{"--padded-vocab-size", "64"}, "must hold all"},
      {{"--decoupled-lr", "1e-6", "--min-lr", "1e-5"}, "--decoupled-lr 1e-06 is below"},
      {{"--group-query-attention", "--num-query-groups", "3"}, "does not divide by --num-query-groups 3"},
      {{"--tokenizer-type", "SFTTokenizer"}, "HuggingFaceTokenizer needs --tokenizer-model"},
      {{"--tokenizer-type", "Llama3Tokenizer"}, "HuggingFaceTokenizer needs --tokenizer-model"},
      {{"--tokenizer-type", "BertWordPieceCase"}, "needs --vocab-file"},
      {{"--tokenizer-type", "TikTokenizer"}, "needs --tokenizer-model"},
      {{"--optimizer", "muon"}, "does not have yet"},
      {{"--hidden-dropout", "1"}, "must be below 1"},
      {{"--log-interval", "0"}, "must be at least 1"},
      {{"--hidden-size", "4294967296"}, "must be at most 2147483647"},
      {{"--tensor-model-parallel-size", "2000000000"}, "must be at most 1000000"},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Et|tL"}, "--num-layers is 4", 2},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Ett|ttL",
        "--account-for-loss-in-pipeline-split"},
       "says which layers each stage has: leave out --account-for-loss-in-pipeline-split",
       2},
      {{"--use-precision-aware-optimizer", "--optimizer", "sgd"}, "needs --optimizer adam"},
      {{"--exp-avg-dtype", "bf16"}, "--exp-avg-dtype bf16 needs --use-precision-aware-optimizer"},
      {{"--exp-avg-sq-dtype", "fp8"}, "fp8"},
      {{"--main-params-dtype", "bf16", "--bf16"}, "--main-params-dtype bf16 needs --use-precision-aware-optimizer"},
      {{"--main-params-dtype", "bf16", "--use-precision-aware-optimizer"}, "--main-params-dtype bf16 needs --bf16"},
      {{"--main-params-dtype", "fp16"}, "fp16"},
      {{"--main-grads-dtype", "bf16", "--use-precision-aware-optimizer"}, "--main-grads-dtype bf16 needs --bf16"},
      {{"--main-grads-dtype", "bf16", "--bf16", "--accumulate-allreduce-grads-in-fp32"}, "exclude each other"},
      {{"--decoder-first-pipeline-num-layers", "4", "--pipeline-model-parallel-size", "2"},
       "--num-layers 4 has too few for the other ranks, whose 1 virtual stages need a layer each beside "
       "--decoder-first-pipeline-num-layers 4 and --decoder-last-pipeline-num-layers 0: give --num-layers 5, or",
       2},
      {{"--decoder-first-pipeline-num-layers", "5", "--pipeline-model-parallel-size", "2"},
       "--num-layers 4 has too few",
       2},
  };
  for (const Refused& test : cases) {
    SCOPED_TRACE(::testing::PrintToString(test.extra));
    EXPECT_THAT(refusal(with(test.extra), test.world_size), HasSubstr(test.text));
  }
}

TEST(Rules, EvaluationOnlyNeedsNeitherLengthNorRate) {
  const Words words = words_of(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
      " --micro-batch-size 2 --vocab-size 100 --tokenizer-type NullTokenizer --mock-data --skip-train");
  EXPECT_EQ(refusal(words), "");
  EXPECT_TRUE(parse_pretrain_gpt(words, 1).checkpoint.no_load_optim);
}

TEST(Rules, AFirstAndALastStageMayHoldAllLayers) {
  EXPECT_EQ(refusal(with({"--pipeline-model-parallel-size", "2", "--decoder-first-pipeline-num-layers", "1",
                          "--decoder-last-pipeline-num-layers", "3"}),
                    2),
            "");
}

TEST(Rules, RefuseUnevenSplitsOfVirtualStagesWithAllOtherMistakes) {
  const std::string text = refusal(
      with({"--num-layers", "8", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2",
            "--decoder-first-pipeline-num-layers", "3", "--decoder-last-pipeline-num-layers", "5", "--log-progress"}),
      2);
  EXPECT_THAT(text, HasSubstr("--decoder-first-pipeline-num-layers 3 does not divide by the 2 virtual stages"));
  EXPECT_THAT(text, HasSubstr("--decoder-last-pipeline-num-layers 5 does not divide by the 2 virtual stages"));
  EXPECT_THAT(text, HasSubstr("--log-progress needs --save"));
  EXPECT_THAT(refusal(with({"--pipeline-model-parallel-size", "2", "--decoder-first-pipeline-num-layers", "1",
                            "--account-for-loss-in-pipeline-split"}),
                      2),
              HasSubstr("exclude"));
}

TEST(Rules, RefuseToMoveExchangesOfVirtualStagesInTime) {
  const Words stages = {
      "--num-layers",        "8", "--pipeline-model-parallel-size",         "4", "--micro-batch-size", "1",
      "--global-batch-size", "8", "--num-virtual-stages-per-pipeline-rank", "2"};
  const auto refusal_of = [&](Words words) -> std::string {
    words.insert(words.begin(), stages.begin(), stages.end());
    try {
      require_runnable(parse_pretrain_gpt(with(words), 4));
    } catch (const NotSupported& error) {
      return error.what();
    }
    return "";
  };
  const Words gathers = {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
                         "--no-align-param-gather", "--no-align-grad-reduce"};
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_THAT(refusal_of({"--no-overlap-p2p-communication"}), HasSubstr("--no-overlap-p2p-communication with virtual"));
  EXPECT_THAT(refusal_of(gathers), HasSubstr("--no-align-param-gather with virtual stages"));
  require_runnable(parse({"--no-overlap-p2p-communication", "--no-align-param-gather"}));
}

TEST(Rules, BucketsArePaddedForHighBandwidthWhereAskedFor) {
  EXPECT_FALSE(data_parallel_config_of(parse()).pad_buckets_for_high_nccl_busbw);
  EXPECT_TRUE(data_parallel_config_of(parse({"--use-distributed-optimizer", "--ddp-pad-buckets-for-high-nccl-busbw"}))
                  .pad_buckets_for_high_nccl_busbw);
}

TEST(Rules, EvaluationBatchesAreThoseOfTrainingUnlessGiven) {
  const PretrainConfig config = parse({"--global-batch-size", "8", "--eval-micro-batch-size", "4"});
  EXPECT_EQ(eval_microbatch_calculator_of(config).at(0), (BatchSize{2, 8, 8}));
}

TEST(Rules, Float16WithoutAConstantScaleLetsNaNThrough) {
  EXPECT_TRUE(parse().training.check_for_nan_in_loss_and_grad);
  EXPECT_FALSE(parse({"--fp16"}).training.check_for_nan_in_loss_and_grad);
  EXPECT_TRUE(parse({"--fp16", "--loss-scale", "8"}).training.check_for_nan_in_loss_and_grad);
}

TEST(Rules, DataPathsGetMegatronsSplit) {
  Words words = with({"--data-path", "a"});
  std::erase(words, "--mock-data");
  EXPECT_EQ(parse_pretrain_gpt(words, 1).data.split, "969, 30, 1");
}

TEST(Rules, AcceptWhatAFullArenaAdvises) {
  int num_advised = 0;
  for (const MemoryUse use : {MemoryUse::kWeights, MemoryUse::kGradients, MemoryUse::kOptimizer,
                              MemoryUse::kActivations, MemoryUse::kWorkspace}) {
    Arena arena({.capacity_bytes = 1 << 20}, nullptr);
    try {
      arena.allocate("x", 1 << 21, use);
      FAIL() << "it fitted";
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      const std::regex quoted("'(--[^']+)'");
      for (std::sregex_iterator flags(text.begin(), text.end(), quoted); flags != std::sregex_iterator(); ++flags) {
        EXPECT_EQ(refusal(with(words_of((*flags)[1].str())), 2), "") << text;
        ++num_advised;
      }
    }
  }
  EXPECT_EQ(num_advised, 7);  // bf16, gradients, moments, main parameters, sharded, recompute twice
}

}  // namespace
}  // namespace megatron
