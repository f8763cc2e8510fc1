#include "megatron/training/checkpoint/upcycled_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "megatron/core/box.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

constexpr std::string_view kExperts = ".mlp.experts.experts.", kDense = ".mlp.";

/// The dense feed-forward's name of a tensor of experts; empty for any other tensor.
std::string dense_key(std::string_view key) {
  const size_t place = key.find(kExperts);
  if (place == std::string_view::npos) return {};
  return std::string(key.substr(0, place)).append(kDense).append(key.substr(place + kExperts.size()));
}

Shape without(const Shape& shape, int dim) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes.erase(sizes.begin() + dim);
  return Shape(std::span<const int64_t>(sizes));
}

void scale_values(const View& view, double factor) {
  if (factor == 1) return;
  dispatch_floating(view.dtype, [&]<class T>() {
    auto* values = static_cast<T*>(view.data);
    for_each_run(view.shape, view.strides, view.strides, [&](int64_t begin, int64_t, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i) {
        const double scaled = factor * static_cast<double>(values[i]);
        if constexpr (std::is_same_v<T, double>)
          values[i] = scaled;
        else
          values[i] = static_cast<T>(static_cast<float>(scaled));
      }
    });
  });
}

/// How much smaller the sum over a token's experts is than the dense output: those of a token have a probability of 1
/// together, or, where softmax is over all experts, as many parts of it as they are.
double loss_of_scale(const MoeConfig& moe, int64_t granularity) {
  const auto slices = static_cast<double>(granularity);
  if (!moe.topk.pre_softmax) return slices;
  return static_cast<double>(moe.num_experts) * slices / static_cast<double>(moe.topk.topk);
}

}  // namespace

UpcycledWeights::UpcycledWeights(const StoredTensors& dense, const TransformerConfig& config, int64_t granularity)
    : dense_(dense), num_parts_(config.gated_linear_unit ? 2 : 1), granularity_(granularity) {
  // A gate, an up projection and a down projection have three factors, and so has the square of one and another.
  const bool has_three = config.gated_linear_unit || config.activation_func == ActivationFunc::kSquaredRelu;
  scale_ = std::pow(loss_of_scale(config.moe.value(), granularity), has_three ? 1.0 / 3 : 1.0 / 2);
}

std::optional<ElementType> UpcycledWeights::type_of(std::string_view key) const {
  const std::string of_dense = dense_key(key);
  return dense_.type_of(of_dense.empty() ? key : of_dense);
}

void UpcycledWeights::read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                                  const View& destination) const {
  const std::string of_dense = dense_key(key);
  if (of_dense.empty()) return dense_.read_tensor(key, global_shape, offsets, destination);
  const bool is_fc1 = of_dense.ends_with(".linear_fc1.weight");
  const int expert_dim = global_shape.rank() - 3, cut_dim = global_shape.rank() - (is_fc1 ? 2 : 1);
  const int64_t num_parts = is_fc1 ? num_parts_ : 1, width = global_shape[cut_dim] / num_parts;
  Shape whole = without(global_shape, expert_dim);
  whole[cut_dim - 1] *= granularity_;
  auto* data = static_cast<std::byte*>(destination.data);
  for (int64_t i = 0; i < destination.shape[expert_dim]; ++i) {
    const int64_t slice = (offsets[expert_dim] + i) % granularity_;
    for (int64_t part = 0; part < num_parts; ++part) {
      const int64_t begin = std::max(offsets[cut_dim], part * width);
      const int64_t end = std::min(offsets[cut_dim] + destination.shape[cut_dim], (part + 1) * width);
      if (begin >= end) continue;
      const int64_t first =
          i * destination.strides[expert_dim] + (begin - offsets[cut_dim]) * destination.strides[cut_dim];
      View piece{data + first * size_of(destination.dtype), destination.dtype, without(destination.shape, expert_dim),
                 without(destination.strides, expert_dim)};
      piece.shape[cut_dim - 1] = end - begin;
      Shape at = without(offsets, expert_dim);
      at[cut_dim - 1] = (part * granularity_ + slice) * width + begin - part * width;
      dense_.read_tensor(of_dense, whole, at, piece);
      scale_values(piece, scale_);
    }
  }
}

void UpcycledWeights::read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const {
  dense_.read_resized_tensor(key, offsets, destination);
}

bool is_of_router(const Parameter& parameter) { return parameter.name().find(".router.") != std::string::npos; }

void repeat_router_rows(const Context& ctx, Model& model, int64_t granularity) {
  for (Parameter* parameter : model.parameters()) {
    if (!is_of_router(*parameter) || !parameter->is_trainable()) continue;
    Tensor& rows = parameter->value();
    for (int64_t row = rows.size(0); row-- > 1;) {  // from the last one on: no row is read after it was written
      const Tensor from = rows.slice(0, row / granularity, 1);
      Tensor to = rows.slice(0, row, 1);
      launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = from.view(), .y = to.view()}); });
    }
  }
}

}  // namespace megatron
