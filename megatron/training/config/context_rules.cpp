// Rules of context parallelism: lengths, heads, and what each way of sharing attention can compute.
#include <algorithm>

#include "megatron/base/word_list.h"
#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

constexpr std::string_view kHybrid = "--hybrid-context-parallel", kMaxLength = "--max-seqlen-per-dp-cp-rank";
constexpr std::string_view kSize = "--context-parallel-size", kType = "--cp-comm-type",
                           kLevels = "--hierarchical-context-parallel-sizes";

bool has(const TransformerConfig& net, CpCommType type) { return std::ranges::count(net.cp_comm_type, type) > 0; }

std::string_view name_of(CpCommType type) {
  for (const auto& [value, name] : names_of_enum(CpCommType{}))
    if (value == type) return name;
  return {};
}

void check_length(const PretrainConfig& config, Mistakes& mistakes) {
  const int64_t cp = config.parallel.context_parallel_size;
  const std::optional<int64_t>& length = config.model.seq_length;
  if (length && *length % (2 * cp) != 0)
    mistakes.add({"--seq-length", kSize},
                 "--seq-length {} does not divide by 2 * {} {}: each rank owns two chunks, one from each end. Give {}",
                 *length, kSize, cp, (*length / (2 * cp) + 1) * 2 * cp);
}

/// Checks the numbers of entries in lists: of communication types, and of hierarchical sizes.
void check_types(const PretrainConfig& config, Mistakes& mistakes) {
  const TransformerConfig& net = config.transformer;
  if (net.cp_comm_type.size() > 1 && net.num_layers > 0 && std::ssize(net.cp_comm_type) != net.num_layers)
    mistakes.add({kType, "--num-layers"},
                 "{} lists {} layers, --num-layers is {}: give one word, or one for each layer", kType,
                 net.cp_comm_type.size(), net.num_layers);
  const auto& levels = config.parallel.hierarchical_context_parallel_sizes;
  const int64_t cp = config.parallel.context_parallel_size;
  const bool is_used = cp > 1 && has(net, CpCommType::kA2aP2p);
  if (levels && !is_used)
    mistakes.add({kLevels, kType, kSize}, "{} {} needs {} a2a+p2p and a {} above 1, which is {}: leave it out", kLevels,
                 joined(*levels, " "), kType, kSize, cp);
  if (is_used && !levels)
    mistakes.add({kType, kLevels}, "{} a2a+p2p needs {}: ranks that share heads, then ranks of the ring, such as 2 {}",
                 kType, kLevels, std::max<int64_t>(1, cp / 2));
  if (is_used && levels && levels->size() != 2)
    mistakes.add({kLevels}, "{} {} has {} level{}, two are needed: ranks that share heads, then ranks of the ring",
                 kLevels, joined(*levels, " "), levels->size(), levels->size() == 1 ? "" : "s");
  if (is_used && levels && levels->size() == 2 && (*levels)[0] * (*levels)[1] != cp)
    mistakes.add({kLevels, kSize}, "{} {} have the product {}, {} is {}: they must be equal", kLevels,
                 joined(*levels, " "), (*levels)[0] * (*levels)[1], kSize, cp);
}

/// Ranks that share heads need an equal part of them; neighbours may share a key-value head.
void check_heads(const PretrainConfig& config, CpCommType type, int64_t num_ranks, Mistakes& mistakes) {
  const TransformerConfig& net = config.transformer;
  const int64_t tp = config.parallel.tensor_model_parallel_size, heads = net.num_attention_heads / tp;
  if (net.num_attention_heads % tp != 0 || heads == 0) return;  // a mistake already
  if (heads % num_ranks != 0)
    mistakes.add(
        {"--num-attention-heads", kType, kSize},
        "{} {} shares {} heads of a tensor-parallel rank (--num-attention-heads {}) among {} ranks: they do not "
        "divide. Choose another number of ranks, or {} all_gather",
        kType, name_of(type), heads, net.num_attention_heads, num_ranks, kType);
  const int64_t groups = std::max<int64_t>(1, net.num_query_groups / tp);
  if (heads % num_ranks == 0 && groups % num_ranks != 0 && num_ranks % groups != 0)
    mistakes.add(
        {"--num-query-groups", kType, kSize},
        "{} {} shares {} key-value heads of a tensor-parallel rank (--num-query-groups {}) among {} ranks: one "
        "of the two must divide the other. Choose another number of ranks, or {} all_gather",
        kType, name_of(type), groups, net.num_query_groups, num_ranks, kType);
}

/// A ring merges parts of a softmax over the keys of whole ranks.
void check_ring(const PretrainConfig& config, CpCommType type, Mistakes& mistakes) {
  const TransformerConfig& net = config.transformer;
  if (net.window_size)
    mistakes.add({"--window-size", kType},
                 "--window-size and {} {} exclude each other: a ring has no windows. Give {} all_gather or a2a", kType,
                 name_of(type), kType);
  if (net.softmax_type != SoftmaxType::kVanilla)
    mistakes.add(
        {"--softmax-type", kType},
        "--softmax-type other than vanilla and {} {} exclude each other: a ring has no attention sinks. Give {} "
        "all_gather or a2a",
        kType, name_of(type), kType);
}

void check_type(const PretrainConfig& config, CpCommType type, Mistakes& mistakes) {
  const int64_t cp = config.parallel.context_parallel_size;
  const auto& levels = config.parallel.hierarchical_context_parallel_sizes;
  if (type == CpCommType::kA2a) return check_heads(config, type, cp, mistakes);
  if (config.transformer.cudnn_attention_dropout && config.transformer.attention_dropout > 0)
    mistakes.add(
        {"--cudnn-attention-dropout", kType},
        "--cudnn-attention-dropout and {} {} exclude each other: cuDNN's mask is of whole sequences. Give {} a2a, "
        "or leave out --cudnn-attention-dropout",
        kType, name_of(type), kType);
  if (type == CpCommType::kAllGather) return;
  check_ring(config, type, mistakes);
  if (type == CpCommType::kA2aP2p && levels && cp % levels->at(0) == 0)
    check_heads(config, type, levels->at(0), mistakes);
}

/// Rejects layers that mix tokens in other ways than causal self attention, or count them.
void check_layers(const PretrainConfig& config, Mistakes& mistakes) {
  const TransformerConfig& net = config.transformer;
  const int64_t cp = config.parallel.context_parallel_size;
  const auto reject = [&](std::string_view flag, std::string_view layers) {
    if (cp > 1)
      mistakes.add({flag, kSize}, "{} with {} {}: {} are not supported with context parallelism yet. Give {} 1", flag,
                   kSize, cp, layers, kSize);
    else
      mistakes.add({flag, kHybrid}, "{} with {}: {} are not supported with context parallelism yet. Leave out {}", flag,
                   kHybrid, layers, kHybrid);
  };
  // Documents of hybrid context parallelism are cut by other code, which has no further tokens.
  if (net.mtp.num_layers > 0 && config.parallel.hybrid_context_parallel)
    mistakes.add({"--mtp-num-layers", kHybrid},
                 "--mtp-num-layers with {}: layers for multi-token prediction are not supported with it yet. Give {} "
                 "in its place",
                 kHybrid, kSize);
  if (net.mtp.num_layers > 0 && cp > 1 && !config.training.calculate_per_token_loss)
    mistakes.add({"--mtp-num-layers", kSize, "--no-calculate-per-token-loss"},
                 "--mtp-num-layers with {} {} and --no-calculate-per-token-loss: a rank averages the loss over its own "
                 "tokens, but that of further tokens over those of all ranks. Leave out --no-calculate-per-token-loss",
                 kSize, config.parallel.context_parallel_size);
  if (!net.layer_kinds.empty()) reject("--hybrid-layer-pattern", "hybrid models");
}

/// A rank's micro-batches are documents, whose number and length differ from those of other ranks, with padding that
/// divides them: experts must not wait for other ranks' micro-batches, and nothing may count the tokens of one.
void check_hybrid_experts(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kExperts = "--expert-model-parallel-size", kParts = "--expert-tensor-parallel-size",
                             kTypes = "--moe-router-load-balancing-type";
  const ExpertsConfig& experts = config.experts;
  const ParallelConfig& parallel = config.parallel;
  if (!experts.num_experts) return;
  const int64_t tp = parallel.tensor_model_parallel_size, ep = parallel.expert_model_parallel_size;
  const int64_t etp = parallel.expert_tensor_parallel_size.value_or(tp);
  if (tp % (ep * etp) != 0)
    mistakes.add({kHybrid, kExperts, kParts},
                 "{} with {} {} and {} {}: ranks that share experts compute the same number of tokens at a time, but "
                 "data-parallel ranks have documents of their own. The product must divide "
                 "--tensor-model-parallel-size {}: give {} 1 and {} 1, or leave out {}",
                 kHybrid, kExperts, ep, kParts, etp, tp, kExperts, kParts, kHybrid);
  const auto reject = [&](bool given, std::string_view flag, std::string_view advice) {
    if (given)
      mistakes.add({kHybrid, flag},
                   "{} with {}: it counts the tokens of a micro-batch, which would be those of a document with its "
                   "padding. {}",
                   kHybrid, flag, advice);
  };
  reject(std::ranges::any_of(experts.aux_loss_coeff, [](double coeff) { return coeff != 0; }), "--moe-aux-loss-coeff",
         "Give 0");
  reject(experts.z_loss_coeff.value_or(0) != 0, "--moe-z-loss-coeff", "Leave out one");
  reject(experts.router_enable_expert_bias, "--moe-router-enable-expert-bias", "Leave out one");
  reject(experts.expert_capacity_factor.value_or(-1) >= 0, "--moe-expert-capacity-factor", "Leave out one");
  for (const LoadBalancingType type : {LoadBalancingType::kSinkhorn, LoadBalancingType::kQuantileBalancing})
    reject(std::ranges::count(experts.router_load_balancing_type, type) > 0, kTypes, "Give none");
}

/// Documents must be told apart, and their ranks must differ in nothing but their tokens.
void check_hybrid(const PretrainConfig& config, Mistakes& mistakes) {
  const ParallelConfig& parallel = config.parallel;
  const auto reject = [&](bool given, std::string_view flag, std::string_view advice) {
    if (given) mistakes.add({kHybrid, flag}, "{} with {}: {}", kHybrid, flag, advice);
  };
  const int64_t num_ranks = parallel.num_replicas();
  if (!parallel.max_seqlen_per_dp_cp_rank)
    mistakes.add({kHybrid, kMaxLength}, "{} needs {}, such as 4096: documents that are longer get more ranks", kHybrid,
                 kMaxLength);
  if (num_ranks < 2)
    mistakes.add({kHybrid, kSize},
                 "{} on 1 data- and context-parallel rank: documents get 1, 2, 4 ... of them or all. Start more ranks, "
                 "or leave out {}",
                 kHybrid, kHybrid);
  const std::optional<int64_t>&length = config.model.seq_length, &most = parallel.max_seqlen_per_dp_cp_rank;
  if (length && most && *length > *most * num_ranks)
    mistakes.add({"--seq-length", kMaxLength},
                 "--seq-length {} does not fit {} ranks with {} {}: a document may be as long as a sample. Give {} {}",
                 *length, num_ranks, kMaxLength, *most, kMaxLength, (*length + num_ranks - 1) / num_ranks);
  if (!config.data.separates_documents() || !config.data.resets_positions())
    mistakes.add({kHybrid},
                 "{} needs samples of separate documents: give --dataloader-inter-document-masking or --sft, or "
                 "--reset-attention-mask with --reset-position-ids",
                 kHybrid);
  reject(parallel.has_stages(), "--pipeline-model-parallel-size above 1",
         "stages would wait for micro-batches that other ranks have. Leave out one");
  reject(!config.training.calculate_per_token_loss, "--no-calculate-per-token-loss",
         "ranks have unequal numbers of documents, whose means cannot be averaged. Leave out one");
  reject(config.transformer.qk_clip, "--qk-clip",
         "the padding of documents would count for the largest logit. Leave out one");
  reject(config.cuda_graph.records(), "--cuda-graph-impl",
         "the documents of each step have other lengths, and a graph has one. Leave out one");
  check_hybrid_experts(config, mistakes);
  for (const CpCommType type : {CpCommType::kA2a, CpCommType::kA2aP2p})
    if (has(config.transformer, type))
      mistakes.add({kHybrid, kType},
                   "{} with {} {}: groups that share heads do not change their size yet. Give {} p2p or all_gather",
                   kHybrid, kType, name_of(type), kType);
}

}  // namespace

void resolve_context_parallel(const PretrainConfig& config, Mistakes& mistakes) {
  check_types(config, mistakes);
  const bool is_hybrid = config.parallel.hybrid_context_parallel;
  if (is_hybrid) check_hybrid(config, mistakes);
  if (config.parallel.context_parallel_size == 1 && !is_hybrid) return;
  check_length(config, mistakes);
  for (const auto& [type, name] : names_of_enum(CpCommType{}))
    if (has(config.transformer, type)) check_type(config, type, mistakes);
  check_layers(config, mistakes);
}

}  // namespace megatron
