// The value tape: a record of one (model chunk, micro-batch), owned by the schedule.
//
// By design it has no double backward, no hooks on intermediate tensors, and no in-place ops on recorded
// tensors.
#pragma once

#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/autograd/node.h"
#include "megatron/autograd/saved_tensor.h"

namespace megatron {

/// The named tensors that cross a segment border.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using Payload = std::vector<NamedTensor>;
/// @throw InternalError if the payload has no such tensor.
const Tensor& at(const Payload& payload, std::string_view name);

/// Forward appends; backward consumes from the end back to a segment border, and continues from there when called
/// again. Deferred W wait in a queue, in the order of B. Not thread-safe.
class Tape {
 public:
  explicit Tape(Device& device) : device_(device), id_(device.next_tape_number()) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Gives `x` a slot whose gradient can be taken.
  void watch(Tensor& x);
  /// The next records belong to a new segment that begins with `input`.
  void mark_segment(const Payload& input);
  /// Values with SavePolicy::kOffload are copied beside kernels. @param num_segments  that will be marked
  void offload_beside_kernels(size_t num_segments) { offloaded_.emplace(device_, num_segments); }
  /// Null without the above.
  OffloadedValues* offloaded_values() { return offloaded_ ? &*offloaded_ : nullptr; }
  void record(std::unique_ptr<Node> node, std::span<const TapeSlot> in, std::span<Tensor* const> out);

  /// The next SavedTensor of the recorded value keeps `again` instead of it.
  void set_rematerialization(TapeSlot value, Rematerialization again);
  /// Empty if there is none.
  Rematerialization take_rematerialization(TapeSlot value);

  /// Adds the gradient of a root; there may be several roots, and several gradients of one.
  void seed(const Context& ctx, TapeSlot root, Tensor grad);
  /// B of all records from the end back to the start of `first_segment`, with W at once (kBW) or queued (kB).
  void backward(Context& ctx, Phase phase, size_t first_segment);
  /// The queued W of segments from `first_segment` to before `end_segment`.
  void backward_weight(Context& ctx, size_t first_segment, size_t end_segment = std::numeric_limits<size_t>::max());
  /// The queued W of a recomputed function join those of the segment of its node.
  void adopt_weight_queue(Tape& inner);

  /// Gradient of a watched tensor, or of a payload tensor at the border that backward has reached; undefined if none.
  Tensor take_gradient(TapeSlot wanted);
  bool is_done() const { return records_.empty() && weight_queue_.empty(); }

 private:
  friend struct BackwardContext;
  struct Output {
    int32_t slot;
    Shape shape;  // a consumer may use the value in another shape; the node gets its gradient in this one
  };
  struct Record {
    std::unique_ptr<Node> node;
    std::vector<int32_t> in;
    std::vector<Output> out;
  };
  struct Border {
    size_t num_records;
    std::set<int32_t> payload;
  };
  struct Deferred {
    std::unique_ptr<Node> node;
    size_t segment;
  };
  void backward_record(Context& ctx, Phase phase, Record r);
  static void run_weight(BackwardContext& b, Node& node);
  TapeSlot new_slot() { return {id_, num_slots_++}; }
  int32_t index_of(TapeSlot slot) const;
  Tensor take(int32_t slot);
  void accumulate(const Context& ctx, int32_t slot, Tensor grad);

  Device& device_;
  uint32_t id_;
  int32_t num_slots_ = 0;
  size_t segment_ = 0;  // of the record in backward
  std::vector<Record> records_;
  std::vector<Border> borders_;
  std::vector<Deferred> weight_queue_;
  std::map<int32_t, Tensor> grads_;  // live gradients only: a handful at any time
  std::set<int32_t> leaves_;
  std::optional<OffloadedValues> offloaded_;
  std::map<int32_t, Rematerialization> rematerializations_;  // not yet used by a SavedTensor
};

/// First part of `record`: counts the uses. True if the op must be recorded.
bool count_uses(Context& ctx, Uses& uses, std::initializer_list<TapeSlot> in);

/// Last step of each op's front: counts the uses of trainable parameters and, with a tape, records the node that
/// `make` builds. Ops that depend on nothing trainable and nothing watched are not recorded.
template <class MakeNode>
void record(Context& ctx, Uses uses, std::initializer_list<TapeSlot> in, std::initializer_list<Tensor*> out,
            MakeNode&& make) {
  if (!count_uses(ctx, uses, in)) return;
  std::unique_ptr<Node> node = make();
  node->uses = std::move(uses);
  node->module = ctx.place.module;
  ctx.tape->record(std::move(node), {in.begin(), in.size()}, {out.begin(), out.size()});
}

}  // namespace megatron
