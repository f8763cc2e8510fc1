// One tile of queries of one head and all its visible keys: the unit of work of attention on CPU.
#pragma once

#include <cstdint>

#include "megatron/kernels/cpu/tile.h"

namespace megatron::kernels {

/// Queries of a tile: the lanes of the vectors, so that the softmax never adds across a vector.
template <class C>
inline constexpr int64_t kQueryTile = 256 / sizeof(C);
inline constexpr int64_t kKeyTile = 64;

/// Dropout of a tile. Query i of the tile and key j of the span (from key 0 of the span) are dropped when
/// draw(key, step, rows[i], first_key + j) < threshold.
struct TileDropout {
  uint32_t threshold = 0;  // 0: none
  uint64_t key = 0;        // the head's
  int64_t step = 0;
  int64_t first_key = 0;          // SequenceSpan::first_key
  const int64_t* rows = nullptr;  // [kQueryTile] global row of each query; any value past the last one
  double kept_scale = 1;
};

/// Operands that forward and backward share.
struct AttentionTile {
  TileRows q;     // from the tile's first query
  TileRows k, v;  // from the span's first key
  int64_t num_queries = 0, num_keys = 0;
  int64_t d = 0, dv = 0;
  int64_t position = 0;         // key index of the first query
  int64_t left = 0, right = 0;  // a query at p attends to keys p - left .. p + right
  double scale = 1;
  double soft_cap = 0;  // of the scores; 0: none
  double sink = 0;      // logit of the additional term of the denominator; -infinity without
  TileDropout dropout;
  void* scratch = nullptr;

  int64_t first_key() const { return position > left ? (position - left) / kKeyTile * kKeyTile : 0; }
  int64_t end_key() const {
    const int64_t end = position + num_queries + right;
    return end < num_keys ? end : num_keys;
  }
};

template <class C>
struct AttentionForwardTile : AttentionTile {
  TileTarget o;
  C* lse = nullptr;
  int64_t lse_stride = 0;
  double* max_logit = nullptr;  // one number, raised to the largest logit
};

/// Sums over tiles go to grad_k and grad_v, [keys, tile_width(d)] and [keys, tile_width(dv)] from the span's first key,
/// where grad_k still lacks the factor `scale`; grad_q is written.
template <class C>
struct AttentionBackwardTile : AttentionTile {
  TileRows o, grad_o;
  const C* lse = nullptr;
  int64_t lse_stride = 0;
  TileTarget grad_q;
  C* grad_k = nullptr;
  C* grad_v = nullptr;
  C* grad_sink = nullptr;  // one number, added to
};

template <class Isa, class C>
void attention_forward_tile(const AttentionForwardTile<C>& tile);
template <class Isa, class C>
void attention_backward_tile(const AttentionBackwardTile<C>& tile);
/// target[r, 0:width] = factor * sums[r, 0:width], where rows of sums are tile_width(width) long.
template <class Isa, class C>
void attention_store_sums(const C* sums, int64_t rows, int64_t width, C factor, const TileTarget& target);

/// Scratch memory of forward for one tile. Laid out in place by the kernel; without memory it computes its size.
template <class C>
struct AttentionForwardScratch {
  [[gnu::always_inline]] inline AttentionForwardScratch(void* data, int64_t d, int64_t dv)
      : pieces(data),
        q(pieces.take<C>(kQueryTile<C> * tile_width<C>(d))),
        q_transposed(pieces.take<C>(kQueryTile<C> * tile_width<C>(d))),
        k(pieces.take<C>(kKeyTile * tile_width<C>(d))),
        v(pieces.take<C>(kKeyTile * tile_width<C>(dv))),
        scores(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        factors(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        o(pieces.take<C>(kQueryTile<C> * tile_width<C>(dv))),
        largest(pieces.take<C>(kQueryTile<C>)),
        sum(pieces.take<C>(kQueryTile<C>)),
        decay(pieces.take<C>(kQueryTile<C>)) {}
  TileScratch pieces;
  C *q, *q_transposed, *k, *v, *scores, *factors, *o, *largest, *sum, *decay;
};

template <class C>
struct AttentionBackwardScratch {
  [[gnu::always_inline]] inline AttentionBackwardScratch(void* data, int64_t d, int64_t dv)
      : pieces(data),
        q(pieces.take<C>(kQueryTile<C> * tile_width<C>(d))),
        q_transposed(pieces.take<C>(kQueryTile<C> * tile_width<C>(d))),
        o(pieces.take<C>(kQueryTile<C> * tile_width<C>(dv))),
        grad_o(pieces.take<C>(kQueryTile<C> * tile_width<C>(dv))),
        grad_o_transposed(pieces.take<C>(kQueryTile<C> * tile_width<C>(dv))),
        k(pieces.take<C>(kKeyTile * tile_width<C>(d))),
        v(pieces.take<C>(kKeyTile * tile_width<C>(dv))),
        probabilities(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        grad_scores(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        factors(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        slopes(pieces.take<C>(kKeyTile * kQueryTile<C>)),
        grad_q(pieces.take<C>(kQueryTile<C> * tile_width<C>(d))),
        lse(pieces.take<C>(kQueryTile<C>)),
        dot(pieces.take<C>(kQueryTile<C>)) {}
  TileScratch pieces;
  C *q, *q_transposed, *o, *grad_o, *grad_o_transposed, *k, *v, *probabilities, *grad_scores, *factors, *slopes,
      *grad_q, *lse, *dot;
};

}  // namespace megatron::kernels
