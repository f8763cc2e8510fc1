#include "megatron/autograd/recompute.h"

#include <utility>

#include "megatron/autograd/recompute_run.h"

namespace megatron {
namespace {

struct RecomputeNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    uses = {};  // the inner nodes count them down
    Tape inner(b.ctx.device);
    Context ctx = b.ctx;
    ctx.tape = &inner;
    ctx.mode = GradMode::kReplay;
    ctx.save = SavePolicy::kKeep;
    ctx.key = key;
    RecomputeRun second{.is_second = true, .kept = std::move(kept)};
    ctx.run = &second;
    ctx.place.pass = Pass::kRecompute;
    std::vector<TapeSlot> watched, roots;
    replay(b, ctx, inner, watched, roots);
    second.require_all_taken();
    ctx.run = nullptr;
    require(roots.size() == grad_out.size(), "[recompute] the function gave {} tensors, and {} the second time.",
            grad_out.size(), roots.size());
    for (size_t i = 0; i < roots.size(); ++i)
      if (grad_out[i].defined()) inner.seed(ctx, roots[i], grad_out[i]);
    // An inner node may add what came on other ways to its own gradient, as it does without recompute.
    for (size_t i = 0; i < watched.size(); ++i)
      if (Tensor gathered = b.take_gathered(i); gathered.defined()) inner.seed(ctx, watched[i], std::move(gathered));
    inner.backward(ctx, b.phase, 0);
    for (size_t i = 0; i < watched.size(); ++i)
      if (b.wanted(i)) grad_in[i] = inner.take_gradient(watched[i]);
    b.tape.adopt_weight_queue(inner);
  }

  /// Second run of the function; its values die at the end of this scope, but for what the inner nodes saved.
  void replay(BackwardContext& b, Context& ctx, Tape& inner, std::vector<TapeSlot>& watched,
              std::vector<TapeSlot>& roots) {
    Payload input;
    for (size_t i = 0; i < saved.size(); ++i) {
      input.push_back({names[i], saved[i].get(ctx)});
      if (b.wanted(i)) inner.watch(input[i].tensor);
      watched.push_back(input[i].tensor.slot);
    }
    saved.clear();
    for (const NamedTensor& item : function(ctx, input)) roots.push_back(item.tensor.slot);
  }

  PayloadFunction function;
  RandomKey key;  // of the first run: backward has that of the schedule
  std::vector<std::string> names;
  std::vector<SavedTensor> saved;
  std::vector<SavedTensor> kept;  // values of compute_once() in the first run
};

}  // namespace

Payload recompute(Context& ctx, const Payload& in, const PayloadFunction& function) {
  if (ctx.mode == GradMode::kOff) return function(ctx, in);
  RecomputeRun run{.outer = ctx.run, .keeps_values = ctx.tape != nullptr};
  Context first = ctx;
  first.tape = nullptr;
  first.run = &run;
  if (ctx.mode == GradMode::kRecord) first.mode = GradMode::kCountUses;
  Payload plain_input = in;  // nothing is recorded in the first run, so no slot may enter it
  for (NamedTensor& item : plain_input) item.tensor.slot = {};
  Payload out = function(first, plain_input);
  if (ctx.run) ctx.run->uses.insert(ctx.run->uses.end(), run.uses.begin(), run.uses.end());
  if (!ctx.tape) return out;

  auto node = std::make_unique<RecomputeNode>();
  node->function = function;
  node->key = ctx.key;
  node->module = ctx.place.module;
  node->uses.in_b = std::move(run.uses);  // already counted
  node->kept = std::move(run.kept);
  std::vector<TapeSlot> slots;
  for (const NamedTensor& item : in) {
    node->names.push_back(item.name);
    node->saved.emplace_back(ctx, item.tensor);
    slots.push_back(item.tensor.slot);
  }
  std::vector<Tensor*> outputs;
  for (NamedTensor& item : out) outputs.push_back(&item.tensor);
  ctx.tape->record(std::move(node), slots, outputs);
  return out;
}

void recompute_when_saved(Context& ctx, const Tensor& value, const Tensor& input,
                          std::function<Tensor(Context&, const Tensor&)> function) {
  if (!ctx.tape) return;
  ctx.tape->set_rematerialization(value.slot, [saved = SavedTensor(ctx, input), function = std::move(function)](
                                                  Context& c) { return function(c, saved.get(c)); });
}

}  // namespace megatron
