#include "megatron/context_parallel/ring_attention.h"

#include <limits>
#include <utility>

#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/merge_attention.h"
#include "megatron/ops/attention_passes.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// The keys and values of a rank, or their gradients.
struct KeyValue {
  Tensor key, value;
};

KeyValue like(const Context& ctx, std::string_view name, const KeyValue& x, DType dtype) {
  return {ctx.empty(name, x.key.shape(), dtype, MemoryUse::kCommunication),
          ctx.empty(name, x.value.shape(), dtype, MemoryUse::kCommunication)};
}

/// Keys and gradients, which travel at the same time, have a channel each.
enum Channel : int { kKeys, kGradients };

/// Sends to the next rank of the ring and receives from the one before.
Work start_shift(const ProcessGroup& ring, const KeyValue& sent, KeyValue& received, Channel channel) {
  const int next = (ring.rank() + 1) % ring.size(), previous = (ring.rank() + ring.size() - 1) % ring.size();
  const PointToPoint messages[] = {send_to(next, sent.key.view(), channel), send_to(next, sent.value.view(), channel),
                                   receive_from(previous, received.key.view(), channel),
                                   receive_from(previous, received.value.view(), channel)};
  return ring.batch(messages, {.site = channel == kKeys ? "keys of the ring" : "gradients of keys",
                               .keep_alive = KeepAlive::of(sent.key.storage(), sent.value.storage(),
                                                           received.key.storage(), received.value.storage())});
}

/// Gives the keys of all ranks in the order of the ring's steps, and receives those of the next step meanwhile.
class TravellingKeys {
 public:
  TravellingKeys(const Context& ctx, const ProcessGroup& ring, const KeyValue& own)
      : ctx_(ctx), ring_(ring), now_(own) {}

  /// Called before the attention of a step.
  const KeyValue& begin_step(int64_t step) {
    has_next_ = step + 1 < ring_.size();
    if (!has_next_) return now_;
    next_ = like(ctx_, "ring.keys", now_, now_.key.dtype());
    work_ = start_shift(ring_, now_, next_, kKeys);
    return now_;
  }
  void end_step() {
    if (!has_next_) return;
    work_.wait();
    now_ = std::exchange(next_, {});
  }

 private:
  const Context& ctx_;
  const ProcessGroup& ring_;
  KeyValue now_, next_;
  Work work_;
  bool has_next_ = false;
};

void fill(const Context& ctx, Tensor& x, double value) {
  launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = x.view(), .value = value}); });
}

Tensor zeros(const Context& ctx, std::string_view name, const Shape& shape, DType dtype) {
  Tensor x = ctx.empty(name, shape, dtype);
  fill(ctx, x, 0);
  return x;
}

/// Computes sum += x; a `sum` without memory becomes x.
void add_to(const Context& ctx, const Tensor& x, Tensor& sum) {
  launch(ctx, {.name = "add"}, [&](auto& stream) { kernels::accumulate(stream, {.x = x.view(), .y = sum.view()}); });
}

/// The sums of the keys' gradients, which travel with the keys.
class TravellingGradients {
 public:
  TravellingGradients(const Context& ctx, const ProcessGroup& ring, const KeyValue& own)
      : ctx_(ctx), ring_(ring), dtype_(statistics_dtype(own.key.dtype())), shapes_(own) {}

  /// The gradients of this step's keys and values, summed over the ranks that had them before; zero in the first step.
  KeyValue& arrived() {
    if (!now_.key.defined()) {
      now_ = like(ctx_, "ring.dkeys", shapes_, dtype_);
      fill(ctx_, now_.key, 0);
      fill(ctx_, now_.value, 0);
    } else if (ring_.size() > 1) {
      work_.wait();
      now_ = std::exchange(next_, {});
    }
    return now_;
  }
  /// Called when this rank's part has been added to arrived().
  void send_on() {
    if (ring_.size() == 1) return;
    next_ = like(ctx_, "ring.dkeys", shapes_, dtype_);
    work_ = start_shift(ring_, now_, next_, kGradients);
  }

 private:
  const Context& ctx_;
  const ProcessGroup& ring_;
  DType dtype_;
  KeyValue shapes_, now_, next_;
  Work work_;
};

Tensor rounded(const Context& ctx, std::string_view name, Tensor sum, DType dtype) {
  if (sum.dtype() == dtype) return sum;
  Tensor y = ctx.empty(name, sum.shape(), dtype);
  launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = sum.view(), .y = y.view()}); });
  return y;
}

/// RingLayouts::steps
using Steps = std::vector<std::vector<SequenceLayout>>;

AttentionOutput forward(const Context& ctx, const Tensor& query, const KeyValue& own, const Steps& steps,
                        const ProcessGroup& ring, const kernels::AttentionOptions& options, const Tensor& max_logits) {
  const int64_t s = query.size(0), b = query.size(1), n = query.size(2);
  const DType dtype = statistics_dtype(query.dtype());
  AttentionOutput sum{zeros(ctx, "ring.o", {s, b, n, own.value.size(3)}, dtype),
                      ctx.empty("ring.lse", {n, b, s}, dtype)};
  fill(ctx, sum.lse, -std::numeric_limits<double>::infinity());
  TravellingKeys keys(ctx, ring, own);
  for (int64_t step = 0; step < ring.size(); ++step) {
    const KeyValue& x = keys.begin_step(step);
    for (const SequenceLayout& layout : steps[static_cast<size_t>(step)]) {
      const AttentionOutput part = attention_forward_pass(ctx, query, x.key, x.value, {}, layout, options, max_logits);
      launch(ctx, {.name = "merge_attention"}, [&](auto& stream) {
        kernels::merge_attention(
            stream, {.o = part.o.view(), .lse = part.lse.view(), .sum_o = sum.o.view(), .sum_lse = sum.lse.view()});
      });
    }
    keys.end_step();
  }
  sum.o = rounded(ctx, "ring.o", std::move(sum.o), query.dtype());
  return sum;
}

struct RingAttentionNode final : Node {
  RingAttentionNode(const Steps& steps, const ProcessGroup& ring, const kernels::AttentionOptions& options)
      : steps(steps), ring(ring), options(options) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Context& ctx = b.ctx;
    const Tensor q = saved_q.get(ctx), o = saved_o.get(ctx), lse = saved_lse.get(ctx);
    const KeyValue own{saved_k.get(ctx), saved_v.get(ctx)};
    const Tensor grad_o = grad_out[0].reshape(o.shape());
    Tensor dq = zeros(ctx, "ring.dq", q.shape(), statistics_dtype(q.dtype()));
    TravellingKeys keys(ctx, ring, own);
    TravellingGradients gradients(ctx, ring, own);
    for (int64_t step = 0; step < ring.size(); ++step) {
      const KeyValue& x = keys.begin_step(step);
      std::vector<KeyValue> parts;
      for (const SequenceLayout& layout : steps[static_cast<size_t>(step)]) {
        Tensor part_dq = ctx.empty_like("attention.dq", q);
        KeyValue part{ctx.empty_like("attention.dk", x.key), ctx.empty_like("attention.dv", x.value)};
        attention_backward_pass(ctx, layout,
                                {.q = q.view(),
                                 .k = x.key.view(),
                                 .v = x.value.view(),
                                 .sink = {},
                                 .o = o.view(),
                                 .lse = lse.view(),
                                 .grad_o = grad_o.view(),
                                 .layout = {},
                                 .options = options,
                                 .grad_q = part_dq.view(),
                                 .grad_k = part.key.view(),
                                 .grad_v = part.value.view(),
                                 .grad_sink = {},
                                 .workspace = {}});
        add_to(ctx, part_dq, dq);
        parts.push_back(std::move(part));
      }
      KeyValue& sums = gradients.arrived();  // received during this step's attention
      for (const KeyValue& part : parts) {
        add_to(ctx, part.key, sums.key);
        add_to(ctx, part.value, sums.value);
      }
      gradients.send_on();
      keys.end_step();
    }
    KeyValue& sums = gradients.arrived();
    grad_in[0] = rounded(ctx, "ring.dq", std::move(dq), q.dtype());
    grad_in[1] = rounded(ctx, "ring.dk", std::move(sums.key), own.key.dtype());
    grad_in[2] = rounded(ctx, "ring.dv", std::move(sums.value), own.value.dtype());
    for (SavedTensor* saved : {&saved_q, &saved_k, &saved_v, &saved_o, &saved_lse}) saved->drop();
  }

  Steps steps;
  ProcessGroup ring;
  kernels::AttentionOptions options;
  SavedTensor saved_q, saved_k, saved_v, saved_o, saved_lse;
};

void require_ring(const Tensor& query, const Tensor& key, const Tensor& value, const RingLayouts& layouts,
                  const ProcessGroup& ring, const AttentionOptions& options) {
  require<ShapeError>(
      layouts.cut.size == ring.size() && layouts.cut.rank == ring.rank() && query.size(0) == layouts.cut.num_rows() &&
          key.size(0) == query.size(0) && value.size(0) == query.size(0) && key.is_contiguous() &&
          value.is_contiguous(),
      "[ring_attention] query {}, key {} and value {} on rank {} of {} are not contiguous rows of rank {} of {} of "
      "sequences of {} tokens.",
      query.shape(), key.shape(), value.shape(), ring.rank(), ring.size(), layouts.cut.rank, layouts.cut.size,
      layouts.cut.length);
  require<NotSupported>(
      options.is_causal && options.window_left < 0 && options.window_right <= 0 &&
          options.softmax == kernels::AttentionSoftmax::kVanilla && !options.is_dropout_of_cudnn,
      "[ring_attention] windows, attention sinks, cuDNN's dropout and attention without a causal mask "
      "are not supported in a ring. Choose --cp-comm-type all_gather or a2a.");
}

Tensor attention_of_steps(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value, const Steps& steps,
                          const ProcessGroup& ring, const AttentionOptions& options) {
  const kernels::AttentionOptions kernel = kernel_options(ctx, options);
  const AttentionOutput out =
      forward(ctx, query, {key, value}, steps, ring, kernel, options.own_max_logits(query.size(2)));
  Tensor y = out.o.reshape({query.size(0), query.size(1), query.size(2) * value.size(3)});
  record(ctx, {}, {query.slot, key.slot, value.slot}, {&y}, [&] {
    auto node = std::make_unique<RingAttentionNode>(steps, ring, kernel);
    node->saved_q = SavedTensor(ctx, query);
    node->saved_k = SavedTensor(ctx, key);
    node->saved_v = SavedTensor(ctx, value);
    node->saved_o = SavedTensor(ctx, out.o);
    node->saved_lse = SavedTensor(ctx, out.lse);
    return node;
  });
  return y;
}

}  // namespace

Tensor ring_attention(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                      const RingLayouts& layouts, const ProcessGroup& ring, const AttentionOptions& options) {
  require_ring(query, key, value, layouts, ring, options);
  return attention_of_steps(ctx, query, key, value, layouts.steps, ring, options);
}

Tensor attention_in_parts(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::vector<SequenceLayout>& parts, const AttentionOptions& options) {
  require<ShapeError>(key.is_contiguous() && value.is_contiguous() && key.size(0) == value.size(0),
                      "[attention_in_parts] key {} and value {} are not contiguous rows of the same sequences.",
                      key.shape(), value.shape());
  require<NotSupported>(
      options.is_causal && options.softmax == kernels::AttentionSoftmax::kVanilla && !options.is_dropout_of_cudnn,
      "[attention_in_parts] attention sinks, cuDNN's dropout and attention without a causal mask are "
      "not supported in parts.");
  return attention_of_steps(ctx, query, key, value, {parts}, ProcessGroup(), options);
}

}  // namespace megatron
