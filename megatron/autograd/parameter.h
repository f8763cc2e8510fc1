// A weight: its shard, its gradient, the leases on it, and when its gradient is complete.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/core/context.h"
#include "megatron/core/shard_spec.h"

namespace megatron {

class Parameter;

/// The right to read a weight: it is present, and must not be written, until the lease ends.
class WeightLease {
 public:
  explicit WeightLease(Parameter& parameter);
  WeightLease(WeightLease&& other) noexcept : parameter_(std::exchange(other.parameter_, nullptr)) {}
  WeightLease& operator=(WeightLease&&) = delete;
  ~WeightLease();
  ConstView view() const;

 private:
  Parameter* parameter_;
};

/// The target of a weight gradient. The first write of a step overwrites, so it is never cleared.
struct GradTarget {
  View view;
  bool accumulate;
};

/// The name of a parameter in checkpoints, or the beginning that the names of a module's parameters have in common.
struct StoredName {
  std::string key;  ///< "decoder.layers.mlp.linear_fc1.weight"; empty: the parameter's own name
  /// Layers of one kind are one tensor in a checkpoint, with a leading axis over the layers: the place on that axis.
  std::optional<int64_t> layer;

  StoredName with(std::string_view end) const { return {key + std::string(end), layer}; }
};

/// Which weights the optimizer decays. As in Megatron biases and vectors do not decay.
enum class WeightDecay {
  kUnlessVector,    ///< decays if it has two dimensions or more
  kNever,           ///< a bias of any shape
  kIfQueryKeyNorm,  ///< decays with --apply-wd-to-qk-layernorm alone
};

/// A box of a tensor, without moving data.
Tensor part_of(const Tensor& tensor, const Box& box);

/// The properties of a parameter, as data.
struct ParameterOptions {
  std::string name;  // full path, as Megatron Core names it: "decoder.layers.3.mlp.linear_fc1.weight"
  ShardSpec shard;
  DType dtype = DType::kFloat32;
  ShardPlace place = {};  // of this rank, on the axes of the parameter's grid (ProcessGroupCollection::shard_place)
  StoredName stored = {};
  TiedCopy tied = {};
  bool is_trainable = true;
  bool is_embedding_or_output = false;  // has its own learning rate with --decoupled-lr
  WeightDecay weight_decay = WeightDecay::kUnlessVector;
  double init_std = 0;  // normal distribution; 0: the constant below
  double init_constant = 0;
};

/// Ready, once a step, when every segment that lists it has had its last forward and all counted uses are gone
/// (tape.md). Not thread-safe.
class Parameter {
 public:
  Parameter(const Context& ctx, ParameterOptions options);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return options_.name; }
  /// Path of the layer that owns it: the name without its last component.
  std::string_view module() const { return std::string_view(name()).substr(0, name().rfind('.')); }
  const ParameterOptions& options() const { return options_; }
  const Shape& shape() const { return shape_; }  // of this rank's shard
  /// The shard as boxes of the whole tensor.
  std::vector<ShardBox> boxes() const { return shard_boxes(options_.shard, options_.place); }
  /// The name of its tensor in checkpoints.
  const std::string& stored_key() const { return options_.stored.key.empty() ? options_.name : options_.stored.key; }
  DType dtype() const { return options_.dtype; }
  bool is_trainable() const { return options_.is_trainable; }

  WeightLease acquire(const Context&) {
    if (before_read) before_read();
    return WeightLease(*this);
  }
  GradTarget grad_target(const Context&);

  /// The shard itself; for initialisation, the optimizer and checkpoints. @throw InternalError while leased.
  Tensor& value();
  const Tensor& value() const {
    if (before_read) before_read();
    return value_;
  }
  /// Gives back the memory of values that nobody has set yet: until move_to() there are none.
  void release_unset();
  /// Moves the values to where they lie from now on; those that have been set are copied.
  void move_to(const Context& ctx, Tensor place);
  /// Gradient of the shard, in the buffer's dtype; undefined without a buffer.
  Tensor& main_grad() { return main_grad_; }
  void set_main_grad(Tensor gradient);
  /// Writes the initial value: a function of (seed, name, global element), so the same in any layout.
  void initialize(const Context& ctx);

  // The executor and the tape call the following functions.
  /// Begins a step: resets the counts of uses and segments.
  void begin_step();
  /// A segment that may use the parameter will run in this step.
  void open_segment() { ++open_segments_; }
  void close_segment(const Context& ctx);
  void add_use();
  void end_use(const Context& ctx);
  /// Ends the step: parameters that no segment has listed become ready.
  void finish(const Context& ctx);
  bool is_ready() const { return is_ready_; }

  std::function<void(Parameter&)> on_ready;  // set by the gradient buckets
  std::function<void()> before_read;         // set by gathers of weights: waits for a gather in flight

 private:
  friend class WeightLease;
  void settle(const Context& ctx);

  ParameterOptions options_;
  Shape shape_;
  Tensor value_, main_grad_;
  bool is_set_ = false;  // somebody could write the values
  int num_leases_ = 0, open_segments_ = 0, num_uses_ = 0;
  bool is_written_ = false, is_ready_ = false;
};

}  // namespace megatron
