// Products of sequence-parallel linear layers in parts, so that the communication of one part hides behind the product
// of another. Megatron Core: --tp-comm-overlap, there by Transformer Engine's user buffers; method after Wang et al.
// 2023 (ASPLOS, 10.1145/3567955.3567959).
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "megatron/comm/process_group.h"
#include "megatron/core/context.h"

namespace megatron {

/// In how many parts each rank's rows go, by what is sent.
struct TensorCommOverlap {
  int64_t num_gather_splits = 0;   // x of a column cut, dy of a row cut; 0: whole, and before any product
  int64_t num_scatter_splits = 1;  // y of a row cut; 1: whole, after the product
  int64_t num_dgrad_splits = 1;    // dx of a column cut; 1: whole, beside the product of W
  /// The W that waits in the tape's queue, that of the layer whose B came before, runs while B communicates: for
  /// schedules that have W right behind B.
  bool delays_weight_gradient = false;
};

/// Writes the product of some rows to as many rows.
using RowProduct = std::function<void(const Tensor& rows, Tensor result)>;

/// result = product of the rows of all ranks, each row by itself. All parts are on their way before the first product,
/// that of the own rows; those of the other ranks follow part by part. The result has the bits of one product where a
/// matmul gives a row the same bits whatever rows are beside it. The built-in tiles, which multiply fp64, do; libraries
/// do not promise it (kernels/cpu/README.md).
/// @param x         [rows, ...], this rank's.
/// @param result    [rows of all ranks, ...]
/// @param gathered  null, or set to x of all ranks: in rank order, whatever the parts.
void multiply_while_gathering(const Context& ctx, const ProcessGroup& group, const Tensor& x, int64_t num_splits,
                              std::string_view site, const RowProduct& product, Tensor result, Tensor* gathered);

/// A sum over the ranks that is there once all of `works` have been waited for.
struct PendingParts {
  Tensor tensor;
  std::vector<Work> works;
  void wait();
};

/// This rank's rows of the sum over the ranks of `product` of `x`. A part of every rank's rows is on its way while the
/// next is multiplied; the sum of an element is that of one reduce_scatter, whatever the parts.
/// @param x          [rows of all ranks, ...]
/// @param last_size  last dimension of the product
/// @throw ShapeError if the rows do not divide by the ranks.
PendingParts multiply_and_scatter(const Context& ctx, const ProcessGroup& group, const Tensor& x, int64_t last_size,
                                  int64_t num_splits, std::string_view site, const RowProduct& product);

}  // namespace megatron
