// Wrong command lines of context parallelism: each gives one error with the wrong value and a fix.
#include <gtest/gtest.h>

#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

BadInput of_context_ranks(const std::string& name, const std::string& words, Words texts) {
  return {name, kPretrain, words_of("--nproc-per-node 4 --context-parallel-size 4 " + words), kUsage, std::move(texts)};
}

TEST(BadFlags, RejectsContextParallelismThatCannotBe) {
  expect_refusals({
      {"ranks", kPretrain, {"--context-parallel-size", "2"}, kUsage, {"1 rank does not divide by", "context 2"}},
      of_context_ranks("length", "--seq-length 12", {"--seq-length 12 does not divide by 2 *", "Give 16"}),
      of_context_ranks("rows of tensor ranks",
                       "--nproc-per-node 16 --tensor-model-parallel-size 4 --sequence-parallel --seq-length 24 "
                       "--max-position-embeddings 24 --num-attention-heads 4",
                       {"--seq-length divided by --context-parallel-size 6 does not divide by"}),
      of_context_ranks("type", "--cp-comm-type ring", {"--cp-comm-type ring", "p2p, all_gather, a2a, a2a+p2p"}),
      of_context_ranks("types of layers", "--num-layers 3 --cp-comm-type p2p a2a",
                       {"lists 2 layers", "--num-layers is 3"}),
      of_context_ranks("heads", "--cp-comm-type a2a", {"a2a shares 2 heads", "among 4 ranks", "all_gather"}),
      of_context_ranks("key-value heads",
                       "--cp-comm-type a2a --num-attention-heads 12 --hidden-size 24 --group-query-attention "
                       "--num-query-groups 6",
                       {"6 key-value heads", "among 4 ranks"}),
      of_context_ranks("no levels", "--cp-comm-type a2a+p2p", {"a2a+p2p needs --hierarchical-context-parallel-sizes"}),
      of_context_ranks("product of levels", "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4",
                       {"2 4 have the product 8", "--context-parallel-size is 4"}),
      of_context_ranks("one level", "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4",
                       {"--hierarchical-context-parallel-sizes 4 has 1 level, two are needed"}),
      of_context_ranks("heads of the first level", "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 1",
                       {"a2a+p2p shares 2 heads", "among 4 ranks"}),
      of_context_ranks("levels of another type", "--hierarchical-context-parallel-sizes 2 2", {"needs --cp-comm-type"}),
      of_context_ranks("window of a ring", "--window-size 4,0", {"--window-size and --cp-comm-type p2p", "all_gather"}),
      of_context_ranks("sinks of a ring", "--softmax-type learnable", {"--softmax-type other than vanilla", "p2p"}),
      of_context_ranks("mask of cuDNN", "--cudnn-attention-dropout --bf16 --cp-comm-type all_gather",
                       {"--cudnn-attention-dropout and --cp-comm-type all_gather"}),
      of_context_ranks("means of further tokens",
                       "--mtp-num-layers 1 --position-embedding-type rope --no-calculate-per-token-loss",
                       {"a rank averages the loss over its own tokens", "Leave out --no-calculate-per-token-loss"}),
      of_context_ranks("graphs", "--cuda-graph-impl full_iteration",
                       {"--context-parallel-size with --cuda-graph-impl"}),
  });
}

/// Four ranks, samples of 16 tokens.
BadInput of_hybrid_ranks(const std::string& name, const std::string& words, Words texts) {
  return {name, kPretrain,
          words_of("--nproc-per-node 4 --seq-length 16 --dataloader-inter-document-masking --hybrid-context-parallel "
                   "--max-seqlen-per-dp-cp-rank 8 " +
                   words),
          kUsage, std::move(texts)};
}

TEST(BadFlags, RejectsHybridContextParallelismThatCannotBe) {
  constexpr std::string_view kHybrid = "--hybrid-context-parallel";
  const auto with = [&](std::string_view flag) { return fmt::format("{} with {}", kHybrid, flag); };
  expect_refusals({
      {"one rank",
       kPretrain,
       words_of("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 64 --dataloader-inter-document-masking"),
       kUsage,
       {"on 1 data- and context-parallel rank:"}},
      of_hybrid_ranks("length", "--max-seqlen-per-dp-cp-rank 3", {"--seq-length 16 does not fit 4 ranks", "Give", "4"}),
      of_hybrid_ranks("no length", "--max-seqlen-per-dp-cp-rank 0", {"must be at least 1"}),
      {"without length",
       kPretrain,
       words_of("--nproc-per-node 2 --hybrid-context-parallel --dataloader-inter-document-masking"),
       kUsage,
       {"needs --max-seqlen-per-dp-cp-rank"}},
      {"whole samples",
       kPretrain,
       words_of("--nproc-per-node 2 --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 64"),
       kUsage,
       {"needs samples of separate documents"}},
      {"positions of samples",
       kPretrain,
       words_of("--nproc-per-node 2 --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 64 --reset-attention-mask"),
       kUsage,
       {"--reset-attention-mask with --reset-position-ids"}},
      of_hybrid_ranks("stages", "--pipeline-model-parallel-size 2", {with("--pipeline-model-parallel-size above 1")}),
      of_hybrid_ranks("means", "--no-calculate-per-token-loss", {with("--no-calculate-per-token-loss")}),
      of_hybrid_ranks("shared heads", "--cp-comm-type a2a", {with("--cp-comm-type a2a"), "p2p or all_gather"}),
      of_hybrid_ranks("two levels", "--cp-comm-type a2a+p2p", {with("--cp-comm-type a2a+p2p")}),
      of_hybrid_ranks("logits of padding", "--qk-clip", {with("--qk-clip")}),
      of_hybrid_ranks("graphs", "--cuda-graph-impl full_iteration", {with("--cuda-graph-impl")}),
      of_hybrid_ranks("further tokens", "--mtp-num-layers 1 --position-embedding-type rope",
                      {"--mtp-num-layers with --hybrid-context-parallel", "Give --context-parallel-size"}),
      of_hybrid_ranks("window of a ring", "--window-size 4,0", {"--window-size and --cp-comm-type p2p"}),
      of_hybrid_ranks("documents twice", "--reset-attention-mask",
                      {"--dataloader-inter-document-masking with --reset-attention-mask"}),
      of_hybrid_ranks("positions twice", "--reset-position-ids",
                      {"--dataloader-inter-document-masking with --reset-position-ids"}),
  });
}

TEST(BadFlags, RejectsExpertsThatHybridContextParallelismCannotHave) {
  const auto of_experts = [](const std::string& name, const std::string& words, Words texts) {
    return of_hybrid_ranks(name, "--num-experts 4 " + words, std::move(texts));
  };
  const auto counts = [](std::string_view flag) {
    return fmt::format("--hybrid-context-parallel with {}: it counts the tokens of a micro-batch", flag);
  };
  expect_refusals({
      of_experts("experts of other ranks", "--expert-model-parallel-size 4",
                 {"--hybrid-context-parallel with --expert-model-parallel-size 4 and --expert-tensor-parallel-size 1",
                  "must divide --tensor-model-parallel-size 1"}),
      of_experts("experts by all-to-all", "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall",
                 {"with --expert-model-parallel-size 2"}),
      of_experts("parts of experts", "--expert-tensor-parallel-size 2",
                 {"--expert-model-parallel-size 1 and --expert-tensor-parallel-size 2", "must divide"}),
      of_experts("loss", "--moe-aux-loss-coeff 0.1", {counts("--moe-aux-loss-coeff"), "Give 0"}),
      of_experts("loss of sequences", "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.1",
                 {counts("--moe-aux-loss-coeff")}),
      of_experts("z-loss", "--moe-z-loss-coeff 0.001", {counts("--moe-z-loss-coeff")}),
      of_experts("bias", "--moe-router-score-function sigmoid --moe-router-enable-expert-bias",
                 {counts("--moe-router-enable-expert-bias")}),
      of_experts("Sinkhorn", "--moe-router-load-balancing-type sinkhorn",
                 {counts("--moe-router-load-balancing-type"), "Give none"}),
      of_experts("quantiles", "--moe-router-load-balancing-type quantile_balancing",
                 {counts("--moe-router-load-balancing-type")}),
      of_experts("capacity", "--moe-expert-capacity-factor 1.5", {counts("--moe-expert-capacity-factor")}),
  });
}

}  // namespace
}  // namespace megatron::testing
