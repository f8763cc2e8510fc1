#include "megatron/bench/step_kernels.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/cross_entropy.h"
#include "megatron/kernels/embedding.h"
#include "megatron/ops/rows.h"
#include "megatron/tensor_parallel/lm_head_loss.h"

namespace megatron {
namespace {

KernelCall look_up(const Context& ctx, const StepShapes& z) {
  Tensor ids = random_ids(ctx, {z.s, z.b}, z.v), table = random_tensor(ctx, {z.v, z.h}, z.model.params_dtype);
  Tensor y = ctx.empty("y", {z.s, z.b, z.h}, z.model.params_dtype);
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "embedding", .shape = &y.shape()}, [&](auto& stream) {
      kernels::embedding_forward(stream, {.index = {.ids = ids.view()}, .table = table.view(), .y = y.view()});
    });
  };
}

KernelCall table_gradient(const Context& ctx, const StepShapes& z, bool accumulates) {
  Tensor ids = random_ids(ctx, {z.s, z.b}, z.v), dy = random_tensor(ctx, {z.s, z.b, z.h}, z.model.params_dtype);
  Tensor dtable = constant_tensor(ctx, {z.v, z.h}, z.gradient_dtype, 0);
  Tensor workspace = ctx.workspace("workspace", kernels::embedding_backward_workspace_bytes(z.t));
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "embedding", .shape = &dy.shape()}, [&](auto& stream) {
      kernels::embedding_backward(stream, {.index = {.ids = ids.view()},
                                           .dy = dy.view(),
                                           .dtable = dtable.view(),
                                           .accumulate = accumulates,
                                           .workspace = workspace.view()});
    });
  };
}

/// Learned positions, added to the word embeddings.
KernelCall look_up_positions(const Context& ctx, const StepShapes& z) {
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b});
  Tensor table = random_tensor(ctx, {z.model.max_sequence_length, z.h}, z.model.params_dtype);
  Tensor y = random_tensor(ctx, {z.s, z.b, z.h}, z.model.params_dtype);
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "embedding", .shape = &y.shape()}, [&](auto& stream) {
      kernels::embedding_forward(stream, {.index = {.ids = {}, .layout = layout.view()},
                                          .table = std::as_const(table).view(),
                                          .y = y.view(),
                                          .accumulate = true});
    });
  };
}

KernelCall positions_gradient(const Context& ctx, const StepShapes& z, bool accumulates) {
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b});
  Tensor dy = random_tensor(ctx, {z.s, z.b, z.h}, z.model.params_dtype);
  Tensor dtable = constant_tensor(ctx, {z.model.max_sequence_length, z.h}, z.gradient_dtype, 0);
  Tensor workspace = ctx.workspace("workspace", kernels::embedding_backward_workspace_bytes(z.t));
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "embedding", .shape = &dy.shape()}, [&](auto& stream) {
      kernels::embedding_backward(stream, {.index = {.ids = {}, .layout = layout.view()},
                                           .dy = std::as_const(dy).view(),
                                           .dtable = dtable.view(),
                                           .accumulate = accumulates,
                                           .workspace = workspace.view()});
    });
  };
}

/// @param embeddings  calls in a step
void add_position_embedding_cases(const StepShapes& z, double embeddings, std::vector<KernelCase>& cases) {
  if (z.model.position_embedding_type != PositionEmbeddingType::kLearnedAbsolute) return;
  const auto element = static_cast<double>(size_of(z.model.params_dtype));
  const auto gradient = static_cast<double>(size_of(z.gradient_dtype));
  const auto hidden = static_cast<double>(z.t * z.h), used = static_cast<double>(z.s * z.h);
  const bool accumulates = z.num_microbatches > 1;
  const double table = accumulates ? 2 * used : static_cast<double>(z.model.max_sequence_length * z.h);
  add_memory_case({.name = "position embedding forward",
                   .calls = embeddings,
                   .bytes = element * (2 * hidden + used),
                   .prepare = [=](const Context& ctx) { return look_up_positions(ctx, z); }},
                  cases);
  add_memory_case({.name = "position embedding backward",
                   .calls = embeddings,
                   .bytes = element * hidden + gradient * table,
                   .prepare = [=](const Context& ctx) { return positions_gradient(ctx, z, accumulates); }},
                  cases);
}

KernelCall loss(const Context& ctx, const StepShapes& z, int64_t t, bool is_backward) {
  const DType dtype = statistics_dtype(z.model.params_dtype);
  Tensor logits = random_tensor(ctx, {t, z.v}, z.model.params_dtype), targets = random_ids(ctx, {t}, z.v);
  // Rows of normal numbers; backward overwrites the logits with their gradient, which keeps them finite.
  Tensor max = constant_tensor(ctx, {t}, dtype, 6), sum_exp = constant_tensor(ctx, {t}, dtype, 1e3);
  Tensor losses = constant_tensor(ctx, {t}, dtype, 1e-3);
  return [=, &ctx, columns = kernels::VocabularyColumns{.vocab_size = z.v}]() mutable {
    launch(ctx, {.name = "cross_entropy", .shape = &logits.shape()}, [&](auto& stream) {
      if (is_backward)
        kernels::cross_entropy_backward(stream, {.logits = std::as_const(logits).view(),
                                                 .columns = columns,
                                                 .targets = targets.view(),
                                                 .max = max.view(),
                                                 .sum_exp = sum_exp.view(),
                                                 .d_loss = losses.view(),
                                                 .d_logits = logits.view()});
      else
        kernels::cross_entropy_forward(stream, {.logits = std::as_const(logits).view(),
                                                .columns = columns,
                                                .targets = targets.view(),
                                                .max = max.view(),
                                                .sum_exp = sum_exp.view(),
                                                .loss = losses.view()});
    });
  };
}

}  // namespace

void add_vocabulary_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto microbatches = static_cast<double>(z.num_microbatches);
  const auto element = static_cast<double>(size_of(z.model.params_dtype));
  const auto gradient = static_cast<double>(size_of(z.gradient_dtype));
  const auto hidden = static_cast<double>(z.t * z.h);
  const double embeddings = stage.has_embedding ? microbatches : 0, heads = stage.has_head ? microbatches : 0;
  // The table already has the output layer's gradient; otherwise the first micro-batch writes all of it.
  const bool is_tied = z.model.share_embeddings_and_output_weights && stage.has_head;
  const bool accumulates = is_tied || z.num_microbatches > 1;
  add_memory_case({.name = "embedding forward",
                   .calls = embeddings,
                   .bytes = 2 * element * hidden,
                   .prepare = [=](const Context& ctx) { return look_up(ctx, z); }},
                  cases);
  // Ids are assumed to differ.
  const double table = accumulates ? 2 * gradient * hidden : gradient * static_cast<double>(z.v * z.h);
  add_memory_case({.name = "embedding backward",
                   .calls = embeddings,
                   .bytes = element * hidden + table,
                   .prepare = [=](const Context& ctx) { return table_gradient(ctx, z, accumulates); }},
                  cases);
  add_position_embedding_cases(z, embeddings, cases);
  const LmHeadChunks chunks(z.s, z.b, z.v);
  const int64_t tokens = chunks.length * z.b;
  for (const bool is_backward : {false, true})
    add_memory_case({.name = is_backward ? "cross entropy backward" : "cross entropy forward",
                     .calls = heads * static_cast<double>(z.s) / static_cast<double>(chunks.length),
                     .bytes = (is_backward ? 2 : 1) * element * static_cast<double>(tokens * z.v),
                     .prepare = [=](const Context& ctx) { return loss(ctx, z, tokens, is_backward); }},
                    cases);
}

}  // namespace megatron
