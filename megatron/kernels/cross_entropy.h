// Cross entropy of logits with target ids, in pieces between which tensor parallel ranks reduce over the vocabulary.
//
//   max = cross_entropy_max                          -> all-reduce (max)
//   sum_exp, target, total = cross_entropy_sums      -> all-reduce (sum)
//   loss = cross_entropy_loss
//   d_logits = cross_entropy_backward
//
// Statistics and losses are fp32 (fp64 for fp64), one value per token, contiguous. Logits are [..., v], the last
// dimension contiguous, any floating dtype; a token is one row.
// The overloads for CUDA take logits in fp32, bf16 and fp16, and throw NotSupported for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// The tokens of the columns. Column c is token first_id + c; columns of tokens at or above
/// `vocab_size` are padding: they take no part in the softmax and their gradient is zero.
struct VocabularyColumns {
  int64_t first_id = 0;
  int64_t vocab_size = 0;  // true size of the whole vocabulary
};

/// max[t] = largest logit of the row; -infinity where all columns are padding.
struct CrossEntropyMaxArgs {
  ConstView logits;
  VocabularyColumns columns;
  View max;
};
void cross_entropy_max(const CpuStream& stream, const CrossEntropyMaxArgs& args);
void cross_entropy_max(const CudaStream& stream, const CrossEntropyMaxArgs& args);

/// sum_exp[t] = sum of exp(x - max);  target[t] = x_target - max, zero where the target is not among the columns;
/// total[t] = sum of (x - max), needed for label smoothing only.
struct CrossEntropySumsArgs {
  ConstView logits;
  VocabularyColumns columns;
  ConstView targets;  // [...] int32 or int64, any strides
  ConstView max;
  View sum_exp, target;
  View total;  // optional
};
void cross_entropy_sums(const CpuStream& stream, const CrossEntropySumsArgs& args);
void cross_entropy_sums(const CudaStream& stream, const CrossEntropySumsArgs& args);

/// loss[t] = mask[t] * (-(1 - a) log p_target - a * mean over the true vocabulary of log p), a = label_smoothing.
/// The loss is 0 where the mask is 0, whatever the logits.
struct CrossEntropyLossArgs {
  ConstView sum_exp, target;
  ConstView total;      // needed if label_smoothing is not 0
  ConstView loss_mask;  // [...] floating, any strides; optional
  double label_smoothing = 0;
  int64_t vocab_size = 0;
  View loss;
};
void cross_entropy_loss(const CpuStream& stream, const CrossEntropyLossArgs& args);
void cross_entropy_loss(const CudaStream& stream, const CrossEntropyLossArgs& args);

/// The three calls above for a whole vocabulary, row by row while the row is in cache. `max` and `sum_exp` are kept for
/// backward.
struct CrossEntropyForwardArgs {
  ConstView logits;
  VocabularyColumns columns;
  ConstView targets;
  ConstView loss_mask;
  double label_smoothing = 0;
  View max, sum_exp, loss;
};
void cross_entropy_forward(const CpuStream& stream, const CrossEntropyForwardArgs& args);
void cross_entropy_forward(const CudaStream& stream, const CrossEntropyForwardArgs& args);

/// d_logits = d_loss[t] * mask[t] * (p - (1 - a) [column is the target] - a / vocab_size).
struct CrossEntropyBackwardArgs {
  ConstView logits;
  VocabularyColumns columns;
  ConstView targets;
  ConstView max, sum_exp;  // of the whole vocabulary
  ConstView loss_mask;     // optional
  ConstView d_loss;        // [...] floating, any strides (0 for one value for all)
  double label_smoothing = 0;
  View d_logits;  // shape of logits; may be logits
};
void cross_entropy_backward(const CpuStream& stream, const CrossEntropyBackwardArgs& args);
void cross_entropy_backward(const CudaStream& stream, const CrossEntropyBackwardArgs& args);

}  // namespace megatron::kernels
