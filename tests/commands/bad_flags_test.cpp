// Wrong command lines: each gives one error with the wrong value and a fix.
#include <gtest/gtest.h>

#include "megatron/core/cuda_stream.h"
#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

BadInput without(Words flags, Words texts) {
  BadInput input{"without " + flags.front(), kPretrain, {}, kUsage, std::move(texts)};
  input.without = std::move(flags);
  return input;
}

TEST(BadFlags, RejectsEachBadTrainingFlag) {
  expect_refusals({
      {"unknown", kPretrain, {"--hiden-size", "8"}, kUsage, {"--hiden-size", "did you mean --hidden-size?"}},
      {"no value", kPretrain, {"--num-layers"}, kUsage, {"--num-layers needs a value"}},
      {"word too many", kPretrain, {"--seed", "1", "stray"}, kUsage, {"'stray' is one word too many for --seed"}},
      {"no number", kPretrain, {"--num-layers", "two"}, kUsage, {"--num-layers two: must be a whole number"}},
      {"no layers", kPretrain, {"--num-layers", "0"}, kUsage, {"--num-layers 0: must be at least 1"}},
      {"endless", kPretrain, {"--train-iters", "9000000000000000000"}, kUsage, {"must be at most"}},
      {"endless evaluation", kPretrain, {"--eval-iters", "9000000000000000000"}, kUsage, {"must be at most"}},
      {"beyond 64 bits", kPretrain, {"--train-iters", "99999999999999999999"}, kUsage, {"must be at most"}},
      {"too many threads", kPretrain, {"--num-threads", "1000000000"}, kUsage, {"--num-threads 1000000000", "at most"}},
      {"dropout", kPretrain, {"--attention-dropout", "1.5"}, kUsage, {"--attention-dropout 1.5: must be below 1"}},
      {"lr below 0", kPretrain, {"--lr", "-1"}, kUsage, {"--lr -1: must be at least 0"}},
      {"lr nan", kPretrain, {"--lr", "nan"}, kUsage, {"--lr nan: must be a finite number"}},
      {"optimizer", kPretrain, {"--optimizer", "adm"}, kUsage, {"--optimizer adm", "adam, sgd", "did you mean adam?"}},
      {"signal", kPretrain, {"--exit-signal", "SIGFOO"}, kUsage, {"SIGFOO", "SIGTERM"}},
      {"switch with value", kPretrain, {"--bf16=1"}, kUsage, {"--bf16 is a switch and takes no value, got '1'"}},
  });
}

TEST(BadFlags, RejectsUnsupportedTrainingFlags) {
  expect_refusals({
      {"experts", kPretrain, {"--moe-enable-deepep"}, kUsage, {"--moe-enable-deepep", "does not have yet"}},
      {"tensor parallel", kPretrain, {"--tensor-model-parallel-size", "2"}, kUsage, {"tensor 2"}},
      {"pipeline", kPretrain, {"--pipeline-model-parallel-size", "2"}, kUsage, {"pipeline 2", "--num-layers 1"}},
      {"graphs of layers", kPretrain, {"--cuda-graph-impl", "local"}, kUsage, {"--cuda-graph-impl local"}},
      {"graphs of modules", kPretrain, {"--cuda-graph-scope", "attn"}, kUsage, {"full_iteration is there"}},
      {"graphs of a CPU",
       kPretrain,
       {"--cuda-graph-impl", "full_iteration", "--device", "cpu"},
       kUsage,
       {"computes on the CPU"}},
      {"tokenizer", kPretrain, {"--tokenizer-type", "Foo"}, kUsage, {"--tokenizer-type Foo", "CharTokenizer"}},
  });
}

/// The error comes before any allocation of that size.
TEST(BadFlags, RejectsTablesLargerThanTheHostMemory) {
  constexpr ExitCode kMemory = ExitCode::kOutOfMemory;
  expect_refusals({
      {"layers", kPretrain, {"--device", "cpu", "--num-layers", "100000000"}, kMemory, {"Give a smaller --num-layers"}},
      {"batch",
       kPretrain,
       {"--device", "cpu", "--global-batch-size", "2147483640"},
       kMemory,
       {"Give a smaller --global-batch-size"}},
      {"positions",
       kPretrain,
       {"--device", "cpu", "--max-position-embeddings", "2147483647"},
       kMemory,
       {"Give a smaller --max-position-embeddings"}},
  });
}

TEST(BadFlags, ReportsMissingTrainingFlags) {
  expect_refusals({
      without({"--num-layers"}, {"--num-layers is required"}),
      without({"--hidden-size"}, {"--hidden-size is required"}),
      without({"--num-attention-heads"}, {"--num-attention-heads is required"}),
      without({"--seq-length"}, {"--seq-length is required"}),
      without({"--max-position-embeddings"}, {"--max-position-embeddings is required"}),
      without({"--micro-batch-size"}, {"--micro-batch-size is required"}),
      without({"--train-iters"}, {"--train-iters or --train-samples is required"}),
      without({"--lr"}, {"--lr is required"}),
      without({"--data-path"}, {"0 data sources", "--mock-data"}),
      without({"--vocab-file"}, {"--tokenizer-type CharTokenizer needs --vocab-file"}),
      without({"--num-layers", "--lr", "--hidden-size"}, {"3 mistakes", "--num-layers", "--lr", "--hidden-size"}),
  });
}

TEST(BadFlags, RejectsContradictingTrainingFlags) {
  expect_refusals({
      {"three at once",
       kPretrain,
       {"--hidden-size", "9", "--seq-length", "32", "--micro-batch-size", "3"},
       kUsage,
       {"3 mistakes", "--hidden-size 9", "Give 10", "--seq-length 32", "Give --max-position-embeddings 32",
        "near ones that do are 3 and 6"}},
      {"min lr", kPretrain, {"--min-lr", "1"}, kUsage, {"--min-lr", "raise --lr or lower --min-lr"}},
      {"warm-up", kPretrain, {"--lr-warmup-iters", "5"}, kUsage, {"lower --lr-warmup-* or train longer"}},
      {"two lengths", kPretrain, {"--train-samples", "10"}, kUsage, {"--train-samples 10", "give one length"}},
      {"units", kPretrain, {"--lr-decay-samples", "9"}, kUsage, {"--lr-decay-samples", "Give --lr-decay-iters"}},
      {"precisions", kPretrain, {"--bf16", "--fp16"}, kUsage, {"exclude each other"}},
      {"endless evaluation",
       kPretrain,
       {"--mock-data", "--full-validation"},
       kUsage,
       {"--eval-iters instead"},
       {},
       {"--data-path"}},
      {"two sources", kPretrain, {"--mock-data"}, kUsage, {"2 data sources are given, one is needed"}},
      {"save how often", kPretrain, {"--save", "@/x"}, kUsage, {"--save needs --save-interval"}},
      {"load what", kPretrain, {"--exit-on-missing-checkpoint"}, kUsage, {"needs --load"}},
      {"recompute", kPretrain, {"--recompute-granularity", "full"}, kUsage, {"needs --recompute-method"}},
      {"vocabulary", kPretrain, {"--vocab-size", "3"}, kUsage, {"--vocab-size is 3", "Leave the flag out or correct"}},
      {"no vocabulary file",
       kPretrain,
       {"--tokenizer-type", "NullTokenizer", "--vocab-size", "9"},
       kUsage,
       {"--vocab-file has no meaning"}},
  });
}

TEST(BadFlags, RejectsBadDataFlags) {
  expect_refusals({
      {"split of letters", kPretrain, {"--split", "a,b,c"}, kUsage, {"--split \"a,b,c\"", "such as 969,30,1"}},
      {"split of nothing", kPretrain, {"--split", "0,0,0"}, kUsage, {"--split \"0,0,0\"", "such as 969,30,1"}},
      {"split of four", kPretrain, {"--split", "1,1,1,1"}, kUsage, {"has 4 numbers", "such as 969,30,1"}},
      {"weight zero", kPretrain, {"--data-path", "0", "@/data"}, kUsage, {"weight 0", "not above zero"}},
      {"weight below zero",
       kPretrain,
       {"--data-path", "-1", "@/data"},
       kUsage,
       {"weight -1 of @/data in the blend is not above zero", "leave that path out"}},
      {"seed", kPretrain, {"--seed", "4294967296"}, kUsage, {"--seed 4294967296: must be at most 4294967295"}},
      {"no train share", kPretrain, {"--split", "0,1,1"}, ExitCode::kData, {"train split has no data", "--split"}},
      {"no valid sequence",
       kPretrain,
       {"--split", "98,1,1"},
       ExitCode::kData,
       {"split has 0 of 40", "--split", "--eval-iters 0"}},
  });
}

TEST(BadFlags, RejectsBadDeviceFlags) {
  expect_refusals({
      {"unknown device", kPretrain, {"--device", "tpu"}, kUsage, {"--device", "cpu", "cuda"}},
      {"TF32 on the CPU",
       kPretrain,
       {"--device", "cpu", "--float32-matmul-precision", "high"},
       kUsage,
       {"--float32-matmul-precision high: TF32 is a GPU's", "Leave it out"}},
      {"TF32 with bf16",
       kPretrain,
       {"--bf16", "--float32-matmul-precision", "high"},
       kUsage,
       {"--float32-matmul-precision high is for fp32 training, and this is bfloat16"}},
      {"fp64 on a GPU", kPretrain, {"--device", "cuda", "--fp64"}, kUsage, {"fp64", "--device cpu"}},
  });
  if (kHasCuda) return;
  expect_refusals({
      {"no such kernels", kPretrain, {"--device", "cuda"}, kUsage, {"-DMEGATRON_CUDA=ON", "--device cpu"}},
      {"nor for ranks", kPretrain, {"--device", "cuda", "--nproc-per-node", "2"}, kUsage, {"-DMEGATRON_CUDA=ON"}},
      {"nor to generate", kGenerate, {"--device", "cuda"}, kUsage, {"-DMEGATRON_CUDA=ON", "--device cpu"}},
  });
}

TEST(BadFlags, RejectsBadPreprocessingFlags) {
  expect_refusals({
      {"key twice", kPreprocess, {"--json-keys", "a", "text", "a"}, kUsage, {"names 'a' twice", "name each key once"}},
      {"ranges",
       kPreprocess,
       {"--workers", "0", "--input-format", "text", "--text-split", "1.5", "--partitions", "0"},
       kUsage,
       {"3 mistakes", "--workers 0", "--text-split 1.5", "--partitions 0"}},
      {"too many workers", kPreprocess, {"--workers", "1000000"}, kUsage, {"--workers 1000000", "at most 1024"}},
      {"empty prefix", kPreprocess, {"--output-prefix", ""}, kUsage, {"--output-prefix '': must not be empty"}},
      {"vocabulary to write",
       kPreprocess,
       {"--input-format", "text", "--tokenizer-type", "CharTokenizer", "--make-char-vocab"},
       kUsage,
       {"--make-char-vocab needs --vocab-file"}},
      {"of training",
       kPreprocess,
       {"--padded-vocab-size", "64"},
       kUsage,
       {"--padded-vocab-size", "padding of the vocabulary is a setting of training"}},
  });
}

TEST(BadFlags, RejectsBadGenerationFlags) {
  expect_refusals({
      {"empty prompt", kGenerate, {"--prompt", ""}, kUsage, {"--prompt '': must not be empty"}},
      {"unknown", kGenerate, {"--promt", "a"}, kUsage, {"did you mean --prompt?"}},
      {"top-p", kGenerate, {"--top-p", "2"}, kUsage, {"--top-p 2: must be at most 1"}},
      {"top-k", kGenerate, {"--top-k", "-1"}, kUsage, {"--top-k -1: must be at least 0"}},
      {"temperature", kGenerate, {"--temperature", "-1"}, kUsage, {"--temperature -1: must be at least 0"}},
      {"greedy of some",
       kGenerate,
       {"--greedy", "--top-k", "5", "--top-p", "0.5"},
       kUsage,
       {"--top-k 5", "--top-p 0.5"}},
      {"greedy of some by temperature",
       kGenerate,
       {"--temperature", "0", "--top-k", "3", "--top-p", "0.5"},
       kUsage,
       {"--temperature 0 takes the most likely token, --top-k 3 draws", "--top-p 0.5 draws"}},
      {"greedy and hot", kGenerate, {"--greedy", "--temperature", "2"}, kUsage, {"--greedy", "give one"}},
      {"no tokens", kGenerate, {"--num-tokens", "0"}, kUsage, {"--num-tokens 0: must be at least 1"}},
      {"two texts", kGenerate, {"--prompts-file", "x"}, kUsage, {"give one of --prompt and --prompts-file"}},
      {"two models", kGenerate, {"--load-hf", "x"}, kUsage, {"give one of --load and --load-hf"}},
      {"empty stop", kGenerate, {"--stop", ""}, kUsage, {"--stop"}},
      {"no batch", kGenerate, {"--batch-size", "0"}, kUsage, {"--batch-size 0: must be at least 1"}},
      {"scores of a text", kGenerate, {"--logprobs"}, kUsage, {"--logprobs needs --json"}},
      {"scores of a prompt", kGenerate, {"--prompt-logprobs"}, kUsage, {"--prompt-logprobs needs --json"}},
      {"candidates of none", kGenerate, {"--json", "--top-logprobs", "2"}, kUsage, {"needs --logprobs"}},
      {"merge rules", kGenerate, {"--merge-file", "x"}, kUsage, {"--merge-file has no meaning"}},
      {"prompt too long",
       kGenerate,
       {"--prompt", "aaaaaaaaaaaaaaaaaaaaaa"},
       ExitCode::kData,
       {"22 tokens", "at most 16", "Shorten the prompt"}},
      {"unknown character", kGenerate, {"--prompt", "aXb"}, ExitCode::kData, {"U+0058", "vocabulary"}},
      {"no UTF-8", kGenerate, {"--prompt", "a\xff"}, ExitCode::kData, {"byte 0xff at offset 1", "iconv"}},
  });
}

TEST(BadFlags, RejectsBadInspectionFlags) {
  expect_refusals({
      {"text of what",
       kInspect,
       {"--tokenizer-type", "ByteLevelTokenizer"},
       kUsage,
       {"--tokenizer-type needs --document or --sample"}},
      {"sample of what", kInspect, {"--sample", "3"}, kUsage, {"--sample needs --seq-length"}},
      {"seed",
       kInspect,
       {"--seq-length", "8", "--sample", "0", "--seed", "4294967296"},
       kUsage,
       {"--seed 4294967296: must be at most 4294967295"}},
      {"no such sample",
       kInspect,
       {"--seq-length", "8", "--sample", "9999"},
       kUsage,
       {"--sample 9999", "numbered from 0"}},
      {"empty split",
       kInspect,
       {"--seq-length", "8", "--sample", "0", "--split", "0,0,1"},
       kUsage,
       {"--split \"0,0,1\" leaves nothing to the train split"}},
  });
}

// Scripts for Megatron start `torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py`.
TEST(BadFlags, TorchrunFlagsForSeveralHostsPointToTheLaunchers) {
  expect_refusal({"several machines",
                  kPretrain,
                  words_of("--nproc_per_node 2 --nnodes 4 --node_rank 0 --master_addr localhost --master_port 6000"),
                  kUsage,
                  {"--nnodes 4: one process starts the ranks of its own host alone", "docs/launching.md"}});
  expect_success({"one machine", kPretrain, words_of("--nproc_per_node 2 --nnodes 1 --tiktoken-pattern v2")});
}

// Errors found in files and on the machine are reported together with those of flags, and without wrong flags too.
TEST(BadFlags, ReportsAllAtOnce) {
  const Words start = {"--data-path", "-1",       "@/data", "0.5",    "@/none",       "--split",
                       "abc",         "--device", "cuda",   "--fp64", "--vocab-file", "@/no_file"};
  const Words texts = {"weight -1 of @/data", "@/none.idx: no such file", "--split \"abc\"", "@/no_file",
                       "--device cuda: fp64"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refusal({"no flag is wrong by itself", kPretrain, start, kUsage, with(texts, {"5 mistakes"})});
  expect_refusal({"others are", kPretrain, with(start, {"--num-layers", "0", "--seed", "-1"}), kUsage,
                  with(texts, {"7 mistakes", "--num-layers 0", "--seed -1"})});
  expect_refusal(
      {"precision and vocabulary",
       kPretrain,
       {"--fp16", "--initial-loss-scale", "2", "--min-loss-scale", "4", "--padded-vocab-size", "3", "--lr", "-1"},
       kUsage,
       {"3 mistakes", "--initial-loss-scale 2 is below --min-loss-scale 4", "--padded-vocab-size", "--lr"}});
  expect_refusal({"files of the tokenizer",
                  kPretrain,
                  words_of("--tokenizer-type GPT2BPETokenizer --vocab-file @/no_file --merge-file @/no_rules"),
                  kUsage,
                  {"2 mistakes", "--vocab-file @/no_file", "--merge-file @/no_rules"}});
  expect_refusal({"a path beyond the limits of the file system",
                  kPretrain,
                  {"--data-path", std::string(300, 'x'), "--num-layers", "0"},
                  kUsage,
                  {"2 mistakes", "xxx.idx: File name too long", "--num-layers 0"}});
  expect_refusal({"data that is named twice",
                  kPretrain,
                  words_of("--data-path 0.5 @/none 0.5 @/none --num-layers 0"),
                  kUsage,
                  {"2 mistakes", "@/none.idx: no such file", "--num-layers 0"}});
  expect_refusal({"of the tokenizer",
                  kPretrain,
                  {"--tokenizer-type", "NullTokenizer", "--vocab-size", "9", "--hidden-size", "9"},
                  kUsage,
                  {"2 mistakes", "--vocab-file has no meaning", "--hidden-size 9"}});
}

}  // namespace
}  // namespace megatron::testing
