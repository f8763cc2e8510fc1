// Backward of one attention tile (Dao 2023, arXiv:2307.08691, algorithm 2, with the loop over queries outside): the
// probabilities are recomputed from q, k and the saved log-sum-exp. Only for tiles_*.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "megatron/kernels/cpu/attention_tile.h"
#include "megatron/kernels/cpu/attention_tile_mask.h"
#include "megatron/kernels/cpu/tile_gemm.h"
#include "megatron/kernels/cpu/tile_rows.h"

namespace megatron::kernels {

/// Per query: log-sum-exp (infinity without a visible key, so that all its probabilities are 0) and dot(o, grad_o),
/// which is the sum over keys of probability times gradient of the probability. Adds the sink's gradient.
template <class Isa, class C>
void load_row_statistics(const AttentionBackwardTile<C>& t, const Tile<C>& o, const Tile<C>& grad_o, int64_t lanes,
                         const AttentionBackwardScratch<C>& x) {
  const C infinity = static_cast<C>(__builtin_inf());
  for (int64_t i = 0; i < lanes; ++i) {
    x.dot[i] = 0;
    x.lse[i] = infinity;
    if (i >= t.num_queries) continue;
    Vector<Isa, C> sum{};
    for (int64_t c = 0; c < tile_width<C>(t.dv); c += kVectorSize<Isa, C>)
      sum += load<Isa>(o.data + i * o.stride + c) * load<Isa>(grad_o.data + i * grad_o.stride + c);
    x.dot[i] = sum_across<Isa, C>(sum);
    const C lse = t.lse[i * t.lse_stride];
    if (lse != -infinity) x.lse[i] = lse;
    if (t.grad_sink) *t.grad_sink -= std::exp(static_cast<C>(t.sink) - x.lse[i]) * x.dot[i];
  }
}

/// probabilities = exp(scores - lse).
template <class Isa, class C>
void compute_probabilities(const SeenPairs<C>& seen, int64_t lanes, const AttentionBackwardScratch<C>& x) {
  seen.for_each_key_block([&](int64_t key, int64_t count, int64_t first_lane) {
    for (int64_t j = key; j < key + count; ++j)
      for (int64_t lane = first_lane; lane < lanes; lane += kVectorSize<Isa, C>) {
        C* p = x.probabilities + j * lanes + lane;
        store<Isa>(p, exponential<Isa, C>(load<Isa>(p) - load<Isa>(x.lse + lane)));
      }
  });
}

/// In: p and grad_p, the gradient of the probabilities after dropout. Out: probabilities after dropout, and
/// grad_scores = p * (factor * grad_p - dot), with factor 1 if nothing is dropped.
template <class Isa, class C>
void differentiate_softmax(const SeenPairs<C>& seen, int64_t lanes, bool dropout,
                           const AttentionBackwardScratch<C>& x) {
  using V = Vector<Isa, C>;
  seen.for_each_key_block([&](int64_t key, int64_t count, int64_t first_lane) {
    for (int64_t j = key; j < key + count; ++j)
      for (int64_t lane = first_lane; lane < lanes; lane += kVectorSize<Isa, C>) {
        const int64_t i = j * lanes + lane;
        const V p = load<Isa>(x.probabilities + i), grad_p = load<Isa>(x.grad_scores + i);
        const V dot = load<Isa>(x.dot + lane);
        if (dropout) {
          const V factor = load<Isa>(x.factors + i);
          store<Isa>(x.probabilities + i, p * factor);
          store<Isa>(x.grad_scores + i, p * (grad_p * factor - dot));
        } else {
          store<Isa>(x.grad_scores + i, p * (grad_p - dot));
        }
      }
  });
}

/// grad_scores becomes the gradient of the scores before the soft cap.
template <class Isa, class C>
void differentiate_cap(const SeenPairs<C>& seen, int64_t lanes, const AttentionBackwardScratch<C>& x) {
  seen.for_each_key_block([&](int64_t key, int64_t count, int64_t first_lane) {
    for (int64_t j = key; j < key + count; ++j)
      for (int64_t lane = first_lane; lane < lanes; lane += kVectorSize<Isa, C>) {
        C* grad = x.grad_scores + j * lanes + lane;
        store<Isa>(grad, load<Isa>(grad) * load<Isa>(x.slopes + j * lanes + lane));
      }
  });
}

/// Gradients of the keys, values and queries of one tile of keys, from probabilities and grad_scores.
template <class Isa, class C>
void add_gradients(const AttentionBackwardTile<C>& t, const SeenPairs<C>& seen, int64_t first_key, int64_t lanes,
                   const Tile<C>& q, const Tile<C>& k, const Tile<C>& grad_o, const AttentionBackwardScratch<C>& x) {
  const int64_t q_width = tile_width<C>(t.d), o_width = tile_width<C>(t.dv);
  seen.for_each_key_block([&](int64_t j, int64_t count, int64_t lane) {
    const int64_t queries = t.num_queries - lane, pairs = j * lanes + lane;
    multiply_tile<Isa, C>({count, o_width, queries, x.probabilities + pairs, lanes, 1,
                           grad_o.data + lane * grad_o.stride, grad_o.stride, t.grad_v + (first_key + j) * o_width,
                           o_width, true});
    multiply_tile<Isa, C>({count, q_width, queries, x.grad_scores + pairs, lanes, 1, q.data + lane * q.stride, q.stride,
                           t.grad_k + (first_key + j) * q_width, q_width, true});
  });
  seen.for_each_lane_block([&](int64_t lane, int64_t count, int64_t end) {
    const int64_t rows = t.num_queries - lane < count ? t.num_queries - lane : count;
    multiply_tile<Isa, C>({rows, q_width, end, x.grad_scores + lane, 1, lanes, k.data, k.stride,
                           x.grad_q + lane * q_width, q_width, true});
  });
}

template <class Isa, class C>
void attention_backward_tile(const AttentionBackwardTile<C>& t) {
  const AttentionBackwardScratch<C> x(t.scratch, t.d, t.dv);
  const int64_t queries = t.num_queries, lanes = tile_width<C>(queries);
  const int64_t q_width = tile_width<C>(t.d), o_width = tile_width<C>(t.dv);
  const bool dropout = t.dropout.threshold > 0;
  const C infinity = static_cast<C>(__builtin_inf());
  const Tile<C> q = tile_of<Isa>(t.q, 0, queries, t.d, true, x.q);
  const Tile<C> o = tile_of<Isa>(t.o, 0, queries, t.dv, true, x.o);
  const Tile<C> grad_o = tile_of<Isa>(t.grad_o, 0, queries, t.dv, true, x.grad_o);
  transpose_tile<Isa>(q, queries, lanes, q_width, static_cast<C>(t.scale), x.q_transposed);
  transpose_tile<Isa>(grad_o, queries, lanes, o_width, C{1}, x.grad_o_transposed);
  load_row_statistics<Isa>(t, o, grad_o, lanes, x);
  for (int64_t i = 0; i < queries * q_width; ++i) x.grad_q[i] = 0;

  for (int64_t key = t.first_key(); key < t.end_key(); key += kKeyTile) {
    const int64_t num_keys = t.end_key() - key < kKeyTile ? t.end_key() - key : kKeyTile;
    const Tile<C> k = tile_of<Isa>(t.k, key, num_keys, t.d, true, x.k);
    const Tile<C> v = tile_of<Isa>(t.v, key, num_keys, t.dv, false, x.v);
    const SeenPairs<C> seen(t, key, num_keys, lanes);
    seen.for_each_key_block([&](int64_t j, int64_t count, int64_t lane) {
      const int64_t pairs = j * lanes + lane;
      multiply_tile<Isa, C>({count, lanes - lane, t.d, k.data + j * k.stride, k.stride, 1, x.q_transposed + lane, lanes,
                             x.probabilities + pairs, lanes});
      multiply_tile<Isa, C>({count, lanes - lane, t.dv, v.data + j * v.stride, v.stride, 1, x.grad_o_transposed + lane,
                             lanes, x.grad_scores + pairs, lanes});
    });
    if (t.soft_cap > 0) cap_scores<Isa>(seen, lanes, static_cast<C>(t.soft_cap), x.probabilities, x.slopes);
    hide_scores<Isa>(t, seen, key, num_keys, lanes, -infinity, x.probabilities);
    compute_probabilities<Isa>(seen, lanes, x);
    if (dropout) fill_dropout_factors<Isa>(t.dropout, key, num_keys, lanes, x.factors);
    differentiate_softmax<Isa>(seen, lanes, dropout, x);
    if (t.soft_cap > 0) differentiate_cap<Isa>(seen, lanes, x);
    add_gradients<Isa>(t, seen, key, lanes, q, k, grad_o, x);
  }

  store_rows<Isa, C>(
      {x.grad_q, q_width}, queries, t.d, [&](int64_t) { return static_cast<C>(t.scale); }, t.grad_q, 0);
}

template <class Isa, class C>
void attention_store_sums(const C* sums, int64_t rows, int64_t width, C factor, const TileTarget& target) {
  store_rows<Isa, C>(
      {sums, tile_width<C>(width)}, rows, width, [&](int64_t) { return factor; }, target, 0);
}

}  // namespace megatron::kernels
