#include "megatron/autograd/tape.h"

#include <algorithm>

#include "megatron/autograd/recompute_run.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {
void count_down(const Context& ctx, const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) p->end_use(ctx);
}
}  // namespace

Tensor BackwardContext::take_gathered(size_t index) { return tape.take(inputs[index]); }

const Tensor& at(const Payload& payload, std::string_view name) {
  for (const NamedTensor& item : payload)
    if (item.name == name) return item.tensor;
  throw InternalError(fmt::format("[payload] no tensor '{}'. The border before this segment must name it.", name));
}

void Tape::watch(Tensor& x) { leaves_.insert((x.slot = new_slot()).index); }

void Tape::mark_segment(const Payload& input) {
  Border border{records_.size(), {}};
  for (const NamedTensor& item : input) border.payload.insert(index_of(item.tensor.slot));
  if (offloaded_) offloaded_->begin_segment(borders_.size());
  borders_.push_back(std::move(border));
}

void Tape::record(std::unique_ptr<Node> node, std::span<const TapeSlot> in, std::span<Tensor* const> out) {
  Record r{std::move(node), {}, {}};
  for (const TapeSlot& slot : in) r.in.push_back(index_of(slot));
  for (Tensor* y : out) r.out.push_back({(y->slot = new_slot()).index, y->shape()});
  records_.push_back(std::move(r));
}

void Tape::set_rematerialization(TapeSlot value, Rematerialization again) {
  if (const int32_t index = index_of(value); index >= 0) rematerializations_[index] = std::move(again);
}

Rematerialization Tape::take_rematerialization(TapeSlot value) {
  if (value.index < 0 || value.tape != id_) return {};
  const auto found = rematerializations_.find(value.index);
  if (found == rematerializations_.end()) return {};
  Rematerialization again = std::move(found->second);
  rematerializations_.erase(found);
  return again;
}

void Tape::seed(const Context& ctx, TapeSlot root, Tensor grad) {
  if (index_of(root) >= 0) accumulate(ctx, root.index, std::move(grad));
}

void Tape::backward(Context& ctx, Phase phase, size_t first_segment) {
  const Border* border = borders_.empty() ? nullptr : &borders_.at(first_segment);
  const auto begin_segment = [this](size_t segment) {
    segment_ = segment;
    if (offloaded_) offloaded_->begin_backward(segment);
  };
  begin_segment(borders_.empty() ? 0 : borders_.size() - 1);
  while (records_.size() > (border ? border->num_records : 0)) {
    while (segment_ > first_segment && records_.size() <= borders_[segment_].num_records) begin_segment(segment_ - 1);
    Record r = std::move(records_.back());
    records_.pop_back();
    backward_record(ctx, phase, std::move(r));
  }
  for (const auto& [slot, grad] : grads_)
    require(leaves_.contains(slot) || (border && border->payload.contains(slot)),
            "[tape] a gradient passes the border of segment {} beside its payload. Name the tensor in the payload.",
            first_segment);
}

void Tape::run_weight(BackwardContext& b, Node& node) {
  const PlaceScope place(b.ctx, {node.module, Pass::kWeightGradient});
  node.backward_weight(b);
}

void Tape::backward_record(Context& ctx, Phase phase, Record r) {
  std::vector<Tensor> grad_out, grad_in(r.in.size());
  for (const Output& y : r.out) {
    Tensor grad = take(y.slot);
    grad_out.push_back(grad.defined() && grad.shape() != y.shape ? grad.reshape(y.shape) : grad);
  }
  if (std::none_of(grad_out.begin(), grad_out.end(), [](const Tensor& g) { return g.defined(); })) {
    count_down(ctx, r.node->uses.in_b);  // a dead branch: no gradient, but its uses are over
    count_down(ctx, r.node->uses.in_w);
    return;
  }
  const PlaceScope place(ctx, {r.node->module, Pass::kInputGradient});
  BackwardContext b{ctx, *this, phase, r.in};
  r.node->backward_input(b, grad_out, grad_in);
  grad_out.clear();
  const bool has_weight = !r.node->uses.in_w.empty();
  if (has_weight && phase == Phase::kBW) run_weight(b, *r.node);
  r.node->finish_input(b);
  for (size_t i = 0; i < grad_in.size(); ++i)
    if (b.wanted(i) && grad_in[i].defined()) accumulate(ctx, r.in[i], std::move(grad_in[i]));
  count_down(ctx, r.node->uses.in_b);
  if (has_weight && phase == Phase::kB)
    weight_queue_.push_back({std::move(r.node), segment_});
  else
    count_down(ctx, r.node->uses.in_w);
}

void Tape::backward_weight(Context& ctx, size_t first_segment, size_t end_segment) {
  std::vector<Deferred> kept, queue = std::exchange(weight_queue_, {});
  for (Deferred& d : queue) {
    if (d.segment < first_segment || d.segment >= end_segment) {
      kept.push_back(std::move(d));
      continue;
    }
    BackwardContext b{ctx, *this, Phase::kBW, {}};
    run_weight(b, *d.node);
    count_down(ctx, d.node->uses.in_w);
    d.node.reset();
  }
  weight_queue_ = std::move(kept);
}

void Tape::adopt_weight_queue(Tape& inner) {
  for (Deferred& d : inner.weight_queue_) weight_queue_.push_back({std::move(d.node), segment_});
  inner.weight_queue_.clear();
}

Tensor Tape::take_gradient(TapeSlot wanted) { return take(index_of(wanted)); }

int32_t Tape::index_of(TapeSlot slot) const {
  require(slot.index < 0 || slot.tape == id_, "[tape] the tensor was recorded on another tape. Pass it as an input.");
  return slot.index;
}

Tensor Tape::take(int32_t slot) {
  auto found = grads_.extract(slot);
  return found ? std::move(found.mapped()) : Tensor{};
}

void Tape::accumulate(const Context& ctx, int32_t slot, Tensor grad) {
  grad.slot = {};
  Tensor& sum = grads_[slot];
  if (!sum.defined()) {
    sum = std::move(grad);
    return;
  }
  require<ShapeError>(sum.num_elements() == grad.num_elements() && sum.dtype() == grad.dtype(),
                      "[tape] two gradients of one value differ: {} {} and {} {}.", sum.dtype(), sum.shape(),
                      grad.dtype(), grad.shape());
  if (grad.shape() != sum.shape()) grad = grad.reshape(sum.shape());
  const bool in_place = sum.owns_storage_alone();  // otherwise a node or another slot still reads it
  Tensor target = in_place ? sum : ctx.empty_like("grad.sum", sum);
  launch(ctx, {.name = "add", .shape = &sum.shape()}, [&](auto& stream) {
    kernels::add(stream, {.a = std::as_const(sum).view(), .b = std::as_const(grad).view(), .y = target.view()});
  });
  sum = std::move(target);
}

bool count_uses(Context& ctx, Uses& uses, std::initializer_list<TapeSlot> in) {
  for (auto* list : {&uses.in_b, &uses.in_w}) {
    std::erase_if(*list, [](const Parameter* p) { return !p || !p->is_trainable(); });
    for (Parameter* p : *list) {
      if (ctx.mode == GradMode::kRecord || ctx.mode == GradMode::kCountUses) p->add_use();
      if (ctx.run) ctx.run->uses.push_back(p);
    }
  }
  const bool depends = std::any_of(in.begin(), in.end(), [](TapeSlot slot) { return slot.is_recorded(); });
  const bool is_recording = ctx.mode == GradMode::kRecord || ctx.mode == GradMode::kReplay;
  return ctx.tape && is_recording && (depends || !uses.in_b.empty() || !uses.in_w.empty());
}

}  // namespace megatron
