#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

namespace megatron::kernels {
namespace {

/// TMA needs addresses and strides that are multiples of 16 bytes.
constexpr int64_t kAlignedBytes = 16, kAlignedElements = 8;
constexpr int64_t kLargestHead = 256;
/// Bytes of cuDNN's own tables, for any shape, and per sequence: more than any plan needs
/// (tests/kernels/cuda/cudnn_attention_test.cpp).
constexpr int64_t kSlackBytes = int64_t{1} << 20, kSequenceBytes = 1024;

int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

bool has_aligned_heads(const ConstView& x) {
  return (x.shape[3] == 1 || x.strides[3] == 1) && x.strides[0] % kAlignedElements == 0 &&
         x.strides[1] % kAlignedElements == 0 && x.strides[2] % kAlignedElements == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % kAlignedBytes == 0;
}

/// Bytes of the gradients of all scores of `num_heads` heads: of one column, or of all sequences of the tables.
template <class Args>
int64_t score_bytes(const Args& args, int64_t num_heads) {
  const int64_t num = has_cudnn_tables(args.layout) ? cudnn_num_sequences(args.layout) : 1;
  return 2 * num * num_heads * round_up(args.q.shape[0], 64) * round_up(args.k.shape[0], 64);
}

/// Says whether a deterministic backward needs more than one piece.
template <class Args>
bool comes_in_pieces(const Args& args) {
  const int64_t num_columns = has_cudnn_tables(args.layout) ? 1 : args.q.shape[1];
  return score_bytes(args, args.q.shape[2]) * num_columns > kDeterministicScoreBytes;
}

/// Requirements of both directions. `v` has the heads of o.
template <class Args>
std::string_view refusal_of_both(const Args& args, std::initializer_list<ConstView> heads) {
  const AttentionOptions& options = args.options;
  const int64_t s = args.q.shape[0], d = args.q.shape[3], dv = args.v.shape[3];
  if (args.q.dtype != DType::kBFloat16 && args.q.dtype != DType::kFloat16) return "it computes in bf16 and fp16 only";
  if (options.dropout > 0 && !options.is_dropout_of_cudnn)
    return "its dropout mask would depend on the layout (--attention-dropout 0 needs none, --cudnn-attention-dropout "
           "permits it)";
  if (options.softmax != AttentionSoftmax::kVanilla) return "the softmax has a sink";
  if (options.soft_cap > 0) return "the scores have a soft cap";
  const bool has_tables = has_cudnn_tables(args.layout);
  if (args.layout.form == SpanForm::kAny) return "sequences share rows, or their masks differ";
  if (!has_tables && args.k.shape[0] != s) return "there are more keys than queries";
  if (s < 2 || args.q.shape[1] == 0 || args.q.shape[2] == 0 || args.layout.num_spans == 0)
    return "there is one query, or none";
  if (d % 8 != 0 || dv % 8 != 0) return "head sizes are not multiples of 8";
  if (d > kLargestHead || dv > kLargestHead) return "heads are larger than 256";
  if (has_tables && (d % 16 != 0 || dv % 16 != 0)) return "head sizes of packed sequences are not multiples of 16";
  const bool has_right = options.is_causal || options.window_right >= 0;
  if (options.window_left >= 0 && !has_right) return "the window is open to the right";
  const bool has_window = options.window_left >= 0 || options.window_right >= 0;
  if (has_window && args.layout.form == SpanForm::kAllVisible) return "the window hides keys of other ranks";
  if (options.dropout > 0 && args.layout.form != SpanForm::kUniform && args.layout.form != SpanForm::kPacked)
    return "its dropout mask counts keys from the first one here";
  if (options.dropout > 0 && options.is_deterministic && comes_in_pieces(args))
    return "deterministic gradients come in pieces of 1 GiB of scores, each with the dropout mask of the first (a "
           "smaller --micro-batch-size may be one piece)";
  if (!std::all_of(heads.begin(), heads.end(), has_aligned_heads)) return "heads do not begin at multiples of 16 bytes";
  return {};
}

/// cuDNN sums gradients of q in fp32, unless it is deterministic; where query heads share a key head, gradients of k
/// and v of each query head are stored; dot(o, grad_o) is fp32.
int64_t accumulator_bytes(const AttentionBackwardArgs& args, const CudnnPiece& piece) {
  const int64_t heads_per_group = args.q.shape[2] / args.k.shape[2];
  const int64_t n = piece.num_groups * heads_per_group, d = args.q.shape[3], dv = args.v.shape[3];
  if (has_cudnn_tables(args.layout)) {  // in the strides of the gradients
    const int64_t of_keys =
        heads_per_group > 1 ? heads_per_group * (args.grad_k.strides[0] + args.grad_v.strides[0]) : 0;
    return 4 *
           (args.q.shape[0] * (args.grad_q.strides[0] + args.q.shape[1] * args.q.shape[2]) + args.k.shape[0] * of_keys);
  }
  const int64_t rows = round_up(args.q.shape[0], 128) * piece.num_columns * n;
  return rows * (4 * d + 4 + (heads_per_group > 1 ? 2 * (d + dv) : 0));
}

}  // namespace

std::string_view cudnn_refusal(const AttentionForwardArgs& args) {
  if (args.max_logits.shape.rank() > 0) return "the largest logits of the heads are wanted";  // also on the meta device
  return refusal_of_both(args, {args.q, args.k, args.v, args.o});
}

std::string_view cudnn_refusal(const AttentionBackwardArgs& args) {
  const std::string_view refusal =
      refusal_of_both(args, {args.q, args.k, args.v, args.o, args.grad_o, args.grad_q, args.grad_k, args.grad_v});
  if (!refusal.empty()) return refusal;
  if (args.options.is_deterministic && score_bytes(args, args.q.shape[2] / args.k.shape[2]) > kDeterministicScoreBytes)
    return "deterministic gradients of so many keys take more than 1 GiB";
  return {};
}

CudnnPiece cudnn_piece(const AttentionForwardArgs& args) { return {args.k.shape[2], args.q.shape[1]}; }

CudnnPiece cudnn_piece(const AttentionBackwardArgs& args) {
  const int64_t g = args.k.shape[2], b = args.q.shape[1];
  if (!args.options.is_deterministic) return {g, b};
  const int64_t bytes_of_group = score_bytes(args, args.q.shape[2] / g);
  const bool has_tables = has_cudnn_tables(args.layout);  // then columns are in one list of sequences
  CudnnPiece piece{g, has_tables ? b : std::clamp<int64_t>(kDeterministicScoreBytes / (bytes_of_group * g), 1, b)};
  const int64_t bytes_of_columns = bytes_of_group * (has_tables ? 1 : piece.num_columns);
  while (g % piece.num_groups != 0 || bytes_of_columns * piece.num_groups > kDeterministicScoreBytes)
    --piece.num_groups;
  while (b % piece.num_columns != 0) --piece.num_columns;
  return piece;
}

bool has_cudnn_tables(const SequenceLayoutView& layout) { return layout.form != SpanForm::kUniform; }

int64_t cudnn_num_sequences(const SequenceLayoutView& layout) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(layout.num_spans)));
}

CudnnTables cudnn_tables(const ConstView& q, const SequenceLayoutView& layout) {
  if (!has_cudnn_tables(layout)) return {};
  const int64_t num = cudnn_num_sequences(layout);
  CudnnTables tables{.offset_bytes = round_up(8 * (num + 1), 256),
                     .length_bytes = round_up(4 * num, 256),
                     .statistics_bytes = round_up(4 * q.shape[0] * q.shape[1] * q.shape[2], 256)};
  tables.total = kCudnnOffsetTables * tables.offset_bytes + 2 * tables.length_bytes + tables.statistics_bytes;
  return tables;
}

int64_t cudnn_seed_bytes(const AttentionOptions& options) { return options.dropout > 0 ? 256 : 0; }

int64_t cudnn_workspace_bytes(const AttentionForwardArgs& args) {
  const CudnnTables tables = cudnn_tables(args.q, args.layout);
  const int64_t bytes = kSlackBytes + cudnn_seed_bytes(args.options);
  return tables.total == 0 ? bytes : bytes + tables.total + kSequenceBytes * cudnn_num_sequences(args.layout);
}

int64_t cudnn_workspace_bytes(const AttentionBackwardArgs& args) {
  const CudnnTables tables = cudnn_tables(args.q, args.layout);
  const CudnnPiece piece = cudnn_piece(args);
  int64_t bytes = tables.total + cudnn_seed_bytes(args.options) + kSlackBytes + accumulator_bytes(args, piece);
  if (tables.total > 0) bytes += kSequenceBytes * cudnn_num_sequences(args.layout);
  if (args.options.is_deterministic) {
    const int64_t num_heads = piece.num_groups * (args.q.shape[2] / args.k.shape[2]);
    bytes += score_bytes(args, num_heads) * (tables.total > 0 ? 1 : piece.num_columns);
  }
  return bytes;
}

}  // namespace megatron::kernels
