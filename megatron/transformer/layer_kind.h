// The kinds of layers, as data.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace megatron {

/// How a layer moves information between positions.
enum class Mixer { kSelfAttention, kLatentAttention, kStateSpace, kLinearAttention, kNone };
/// The part of a layer that sees each position on its own.
enum class FeedForward { kDense, kExperts, kNone };

constexpr auto names_of_enum(Mixer) {
  return std::to_array<std::pair<Mixer, std::string_view>>({{Mixer::kSelfAttention, "self attention"},
                                                            {Mixer::kLatentAttention, "latent attention"},
                                                            {Mixer::kStateSpace, "a state space"},
                                                            {Mixer::kLinearAttention, "linear attention"},
                                                            {Mixer::kNone, "no mixer"}});
}
constexpr auto names_of_enum(FeedForward) {
  return std::to_array<std::pair<FeedForward, std::string_view>>({{FeedForward::kDense, "a dense feed-forward"},
                                                                  {FeedForward::kExperts, "experts"},
                                                                  {FeedForward::kNone, "no feed-forward"}});
}

/// Each part other than kNone has a norm before it and a residual connection around it.
struct LayerKind {
  Mixer mixer = Mixer::kSelfAttention;
  FeedForward feed_forward = FeedForward::kDense;
  bool operator==(const LayerKind&) const = default;
};

}  // namespace megatron
