// The changes to the scores of an attention tile before the softmax: soft cap, causal mask, window, dropout; and the
// unmasked part of a tile. Only for tiles_*.cpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "megatron/kernels/cpu/attention_tile.h"
#include "megatron/kernels/cpu/tile_vector.h"

namespace megatron::kernels {

/// The unmasked pairs of `num_keys` keys from first_key on and a tile's queries, in blocks of whole
/// vectors: where a causal mask cuts the tile, nearly half of it need not be computed.
template <class C>
class SeenPairs {
 public:
  [[gnu::always_inline]] inline SeenPairs(const AttentionTile& t, int64_t first_key, int64_t num_keys, int64_t lanes)
      : num_keys_(num_keys), lanes_(lanes), offset_(first_key - t.right - t.position) {
    const bool sees_all = offset_ + num_keys <= 1;
    key_block_ = sees_all ? num_keys : kTileAlignment<C>;
    lane_block_ = sees_all ? lanes : kTileAlignment<C>;
  }
  /// f(key, count, lane): lanes before `lane` attend to none of the keys [key, key + count).
  template <class F>
  [[gnu::always_inline]] inline void for_each_key_block(F&& f) const {
    for (int64_t key = 0; key < num_keys_; key += key_block_) {
      const int64_t lane = key + offset_ <= 0 ? 0 : (key + offset_) / kTileAlignment<C> * kTileAlignment<C>;
      if (lane < lanes_) f(key, num_keys_ - key < key_block_ ? num_keys_ - key : key_block_, lane);
    }
  }
  /// f(lane, count, end): the lanes [lane, lane + count) attend to no key from `end` on.
  template <class F>
  [[gnu::always_inline]] inline void for_each_lane_block(F&& f) const {
    for (int64_t lane = 0; lane < lanes_; lane += lane_block_)
      if (end_key(lane) > 0) f(lane, lane_block_, end_key(lane));
  }
  /// The block of lanes that `lane` is in attends to no key from this one on.
  [[gnu::always_inline]] inline int64_t end_key(int64_t lane) const {
    const int64_t end = (lane / lane_block_ + 1) * lane_block_ - offset_;
    return end < num_keys_ ? end : num_keys_;
  }

 private:
  int64_t num_keys_, lanes_, offset_;  // lane i attends to keys up to i - offset_
  int64_t key_block_, lane_block_;
};

/// score = cap * tanh(score / cap) for the computed pairs, and the derivative of it to `slopes` if it is not null.
template <class Isa, class C>
void cap_scores(const SeenPairs<C>& seen, int64_t lanes, C cap, C* scores, C* slopes = nullptr) {
  using V = Vector<Isa, C>;
  const V height = broadcast<Isa>(cap), inverse = broadcast<Isa>(C{1} / cap);
  seen.for_each_key_block([&](int64_t key, int64_t count, int64_t first_lane) {
    for (int64_t j = key; j < key + count; ++j)
      for (int64_t lane = first_lane; lane < lanes; lane += kVectorSize<Isa, C>) {
        const int64_t i = j * lanes + lane;
        const V share = hyperbolic_tangent<Isa, C>(load<Isa>(scores + i) * inverse);
        store<Isa>(scores + i, height * share);
        if (slopes) store<Isa>(slopes + i, (C{1} - share) * (C{1} + share));
      }
  });
}

/// Writes `hidden` to scores[key, lane] if the lane's query does not attend to the key, among the computed pairs.
template <class Isa, class C>
void hide_scores(const AttentionTile& t, const SeenPairs<C>& seen, int64_t first_key, int64_t num_keys, int64_t lanes,
                 C hidden, C* scores) {
  const int64_t last_key = first_key + num_keys - 1, last_position = t.position + t.num_queries - 1;
  if (last_key <= t.position + t.right && first_key >= last_position - t.left) return;
  using Lanes = Vector<Isa, std::conditional_t<std::is_same_v<C, double>, int64_t, int32_t>>;
  using Lane = std::remove_reference_t<decltype(Lanes{}[0])>;
  constexpr int64_t kSize = kVectorSize<Isa, C>;
  Lanes first_lanes{};
  for (int i = 0; i < kSize; ++i) first_lanes[i] = static_cast<Lane>(i);
  const Vector<Isa, C> nothing = broadcast<Isa>(hidden);
  seen.for_each_key_block([&](int64_t begin_key, int64_t count, int64_t begin_lane) {
    for (int64_t j = begin_key; j < begin_key + count; ++j) {
      const int64_t key = first_key + j;
      const int64_t begin = key - t.right - t.position, end = key + t.left - t.position + 1;  // lanes with this key
      for (int64_t lane = begin_lane; lane < lanes; lane += kSize) {
        if (lane >= begin && lane + kSize <= end) continue;
        const Lanes index = first_lanes + static_cast<Lane>(lane);
        const Lane first = static_cast<Lane>(begin < 0 ? 0 : begin < lanes ? begin : lanes);
        const Lane last = static_cast<Lane>(end < 0 ? 0 : end < lanes ? end : lanes);
        C* x = scores + j * lanes + lane;
        store<Isa>(x, ((index >= first) & (index < last)) ? load<Isa>(x) : nothing);
      }
    }
  });
}

/// Philox 4x32-10 of core/random.h on vectors whose 64-bit elements hold 32-bit words; the upper halves of c stay
/// undefined until the end.
template <class Isa>
struct PhiloxVector {
  using Words = typename VectorOf<uint64_t, Isa::kVectorBytes>::Type;
  Words c[4];

  [[gnu::always_inline]] inline void run(uint64_t key) {
    uint64_t k0 = key & 0xFFFFFFFFu, k1 = key >> 32;
    const Words m0 = Words{} + 0xD2511F53u, m1 = Words{} + 0xCD9E8D57u;
    for (int round = 0; round < 10; ++round) {
      const Words p0 = Isa::multiply_low_halves(c[0], m0), p1 = Isa::multiply_low_halves(c[2], m1);
      c[0] = (p1 >> 32) ^ c[1] ^ k0;
      c[2] = (p0 >> 32) ^ c[3] ^ k1;
      c[1] = p1;
      c[3] = p0;
      k0 = (k0 + 0x9E3779B9u) & 0xFFFFFFFFu;
      k1 = (k1 + 0xBB67AE85u) & 0xFFFFFFFFu;
    }
    for (Words& word : c) word &= 0xFFFFFFFFu;
  }
};

/// factors[key, lane] = 0 where the pair is dropped, else 1 / (1 - rate).
/// @param first_key  of the span
template <class Isa, class C>
void fill_dropout_factors(const TileDropout& dropout, int64_t first_key, int64_t num_keys, int64_t lanes, C* factors) {
  constexpr int64_t kSize = Isa::kVectorBytes / 8;
  using Words = typename PhiloxVector<Isa>::Words;
  using Integers = typename VectorOf<int32_t, 4 * kSize>::Type;
  using Factors = typename VectorOf<C, kSize* static_cast<int64_t>(sizeof(C))>::Type;
  using Unaligned = typename VectorOf<C, kSize* static_cast<int64_t>(sizeof(C))>::Unaligned;
  const Words threshold = Words{} + dropout.threshold;
  const Words step = Words{} + (static_cast<uint64_t>(dropout.step) & 0xFFFFFFFFu);
  const int64_t first_draw = dropout.first_key + first_key;
  for (int64_t lane = 0; lane < lanes; lane += kSize) {
    Words row{};
    for (int64_t i = 0; i < kSize; ++i) row[i] = static_cast<uint64_t>(dropout.rows[lane + i]);
    for (int64_t j = -(first_draw % 4); j < num_keys; j += 4) {  // four draws at a time, from a multiple of four on
      PhiloxVector<Isa> draws{{Words{} + static_cast<uint64_t>((first_draw + j) / 4), row, row >> 32, step}};
      draws.run(dropout.key);
      for (int64_t e = j < 0 ? -j : 0; e < (num_keys - j < 4 ? num_keys - j : 4); ++e) {
        const Integers kept = __builtin_convertvector(draws.c[e] >= threshold, Integers);  // -1 where kept
        *reinterpret_cast<Unaligned*>(factors + (j + e) * lanes + lane) =
            __builtin_convertvector(-kept, Factors) * static_cast<C>(dropout.kept_scale);
      }
    }
  }
}

}  // namespace megatron::kernels
