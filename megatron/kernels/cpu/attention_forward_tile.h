// Forward of one attention tile: online softmax over tiles of keys (Dao 2023, arXiv:2307.08691, algorithm 1). Scores
// are kept as [key, query], so that largest value and sum of a query's scores never cross a vector. Only for
// tiles_*.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "megatron/kernels/cpu/attention_tile.h"
#include "megatron/kernels/cpu/attention_tile_mask.h"
#include "megatron/kernels/cpu/tile_gemm.h"
#include "megatron/kernels/cpu/tile_rows.h"

namespace megatron::kernels {

/// Adds the scores of more keys to each query's largest score and sum of exponentials, and replaces them
/// by exp(score - largest); decay is the factor for the sums so far.
template <class Isa, class C>
void update_softmax(const SeenPairs<C>& seen, int64_t lanes, const AttentionForwardScratch<C>& x) {
  using V = Vector<Isa, C>;
  for (int64_t lane = 0; lane < lanes; lane += kVectorSize<Isa, C>) {
    C* scores = x.scores + lane;
    const int64_t num_keys = seen.end_key(lane);
    const V before = load<Isa>(x.largest + lane);
    V largest = before;
    for (int64_t j = 0; j < num_keys; ++j) largest = larger(largest, load<Isa>(scores + j * lanes));
    const V infinity = broadcast<Isa>(static_cast<C>(__builtin_inf()));
    const V shift = largest == -infinity ? V{} : largest;  // a query without a visible key so far
    const V decay = exponential<Isa, C>(before - shift);
    V sum = load<Isa>(x.sum + lane) * decay;
    for (int64_t j = 0; j < num_keys; ++j) {
      const V weight = exponential<Isa, C>(load<Isa>(scores + j * lanes) - shift);
      store<Isa>(scores + j * lanes, weight);
      sum += weight;
    }
    store<Isa>(x.largest + lane, largest);
    store<Isa>(x.sum + lane, sum);
    store<Isa>(x.decay + lane, decay);
  }
}

template <class Isa, class C>
void scale_rows(int64_t rows, int64_t width, const C* factors, C* x) {
  for (int64_t r = 0; r < rows; ++r, x += width) {
    if (factors[r] == 1) continue;
    const Vector<Isa, C> factor = broadcast<Isa>(factors[r]);
    for (int64_t c = 0; c < width; c += kVectorSize<Isa, C>) store<Isa>(x + c, load<Isa>(x + c) * factor);
  }
}

/// Raises `largest` to the largest of the scores of real queries; hidden ones are -infinity.
template <class C>
void raise_largest(const SeenPairs<C>& seen, int64_t num_queries, int64_t lanes, const C* scores, double& largest) {
  seen.for_each_key_block([&](int64_t key, int64_t count, int64_t first_lane) {
    for (int64_t j = key; j < key + count; ++j)
      for (int64_t lane = first_lane; lane < num_queries; ++lane)
        if (const auto score = static_cast<double>(scores[j * lanes + lane]); score > largest) largest = score;
  });
}

template <class Isa, class C>
void attention_forward_tile(const AttentionForwardTile<C>& t) {
  const AttentionForwardScratch<C> x(t.scratch, t.d, t.dv);
  const int64_t lanes = tile_width<C>(t.num_queries), q_width = tile_width<C>(t.d), o_width = tile_width<C>(t.dv);
  transpose_tile<Isa>(tile_of<Isa>(t.q, 0, t.num_queries, t.d, true, x.q), t.num_queries, lanes, q_width,
                      static_cast<C>(t.scale), x.q_transposed);
  const C sink = static_cast<C>(t.sink), infinity = static_cast<C>(__builtin_inf());
  for (int64_t i = 0; i < lanes; ++i) {
    x.largest[i] = sink;
    x.sum[i] = sink == -infinity ? C{0} : C{1};
  }
  for (int64_t i = 0; i < t.num_queries * o_width; ++i) x.o[i] = 0;

  for (int64_t key = t.first_key(); key < t.end_key(); key += kKeyTile) {
    const int64_t num_keys = t.end_key() - key < kKeyTile ? t.end_key() - key : kKeyTile;
    const Tile<C> k = tile_of<Isa>(t.k, key, num_keys, t.d, false, x.k);
    const SeenPairs<C> seen(t, key, num_keys, lanes);
    seen.for_each_key_block([&](int64_t j, int64_t count, int64_t lane) {
      multiply_tile<Isa, C>({count, lanes - lane, t.d, k.data + j * k.stride, k.stride, 1, x.q_transposed + lane, lanes,
                             x.scores + j * lanes + lane, lanes});
    });
    if (t.soft_cap > 0) cap_scores<Isa>(seen, lanes, static_cast<C>(t.soft_cap), x.scores);
    hide_scores<Isa>(t, seen, key, num_keys, lanes, -infinity, x.scores);
    // A sink hides in x.largest what is below it.
    if (t.max_logit && sink != -infinity) raise_largest(seen, t.num_queries, lanes, x.scores, *t.max_logit);
    update_softmax<Isa>(seen, lanes, x);
    if (t.dropout.threshold > 0) {
      fill_dropout_factors<Isa>(t.dropout, key, num_keys, lanes, x.factors);
      for (int64_t i = 0; i < num_keys * lanes; i += kVectorSize<Isa, C>)
        store<Isa>(x.scores + i, load<Isa>(x.scores + i) * load<Isa>(x.factors + i));
    }
    scale_rows<Isa>(t.num_queries, o_width, x.decay, x.o);
    const Tile<C> v = tile_of<Isa>(t.v, key, num_keys, t.dv, true, x.v);
    seen.for_each_lane_block([&](int64_t lane, int64_t count, int64_t end) {
      const int64_t rows = t.num_queries - lane < count ? t.num_queries - lane : count;
      multiply_tile<Isa, C>(
          {rows, o_width, end, x.scores + lane, 1, lanes, v.data, v.stride, x.o + lane * o_width, o_width, true});
    });
  }

  store_rows<Isa, C>(
      {x.o, o_width}, t.num_queries, t.dv, [&](int64_t i) { return x.sum[i] == 0 ? 0 : 1 / x.sum[i]; }, t.o, 0);
  for (int64_t i = 0; i < t.num_queries; ++i) t.lse[i * t.lse_stride] = x.largest[i] + std::log(x.sum[i]);
  if (!t.max_logit || sink != -infinity) return;
  for (int64_t i = 0; i < t.num_queries; ++i) {
    const double largest = static_cast<double>(x.largest[i]);
    if (largest > *t.max_logit) *t.max_logit = largest;
  }
}

}  // namespace megatron::kernels
