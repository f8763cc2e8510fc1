#include <algorithm>
#include <limits>
#include <vector>

#include "megatron/kernels/cpu/attention.h"
#include "megatron/kernels/cpu/attention_inputs.h"

namespace megatron::kernels {
namespace {

/// Memory of one thread.
template <class C>
struct ThreadMemory {
  ThreadMemory(char* data, int64_t d, int64_t dv)
      : pieces(data), rows(pieces.take<int64_t>(kQueryTile<C>)), tile(pieces.take<char>(tile_bytes(d, dv))) {}
  static int64_t tile_bytes(int64_t d, int64_t dv) { return AttentionForwardScratch<C>(nullptr, d, dv).pieces.bytes(); }
  TileScratch pieces;
  int64_t* rows;
  void* tile;
};

template <class C>
void clear_uncovered_rows(const AttentionInputs& in, const AttentionForwardArgs& args, C* lse) {
  for (int64_t column = 0; column < in.b(); ++column) {
    if (!in.has_uncovered_rows(column)) continue;
    for (int64_t head = 0; head < in.n(); ++head) {
      zero_rows(args.o, column, head);
      for (int64_t row = 0; row < in.s(); ++row)
        lse[statistics_index(args.lse, row, column, head)] = -std::numeric_limits<C>::infinity();
    }
  }
}

/// Largest logits of each head, found by several threads.
class MaxLogits {
 public:
  MaxLogits(const View& target, int team) : target_(target), size_(target.defined() ? target.shape[0] : 0) {
    found_.assign(static_cast<size_t>(size_ * team), -std::numeric_limits<double>::infinity());
  }
  /// Null if they are not wanted.
  double* of(int64_t thread, int64_t head) {
    return size_ > 0 ? &found_[static_cast<size_t>(thread * size_ + head)] : nullptr;
  }
  void store() const {
    for (size_t i = 0; i < found_.size(); ++i) {
      double& largest = target_.as<double>()[i % static_cast<size_t>(size_)];
      largest = std::max(largest, found_[i]);
    }
  }

 private:
  View target_;
  int64_t size_;
  std::vector<double> found_;  // [threads, heads]
};

template <class C, class Isa>
void run_forward(const CpuStream& stream, const AttentionForwardArgs& args) {
  const AttentionInputs in{args.q, args.k, args.v, args.sink, args.layout, args.options};
  in.check(args.o);
  C* lse = args.lse.as<C>();
  clear_uncovered_rows(in, args, lse);

  int64_t longest = 0;
  for (int64_t i = 0; i < args.layout.num_spans; ++i)
    longest = std::max<int64_t>(longest, args.layout.spans[i].query_length);
  const int64_t tiles = (longest + kQueryTile<C> - 1) / kQueryTile<C>;
  const int64_t num_tasks = args.layout.num_spans * in.n() * tiles;
  const int64_t thread_bytes = ThreadMemory<C>(nullptr, in.d(), in.dv()).pieces.bytes();
  const int team = attention_team(stream, num_tasks, 2 * in.num_pairs() * (in.d() + in.dv()));
  MaxLogits max_logits(args.max_logits, team);
  for_each_task(team, num_tasks, [&](int64_t task, int64_t thread) {
    const int64_t head = task / tiles % in.n();
    const int64_t first = (tiles - 1 - task % tiles) * kQueryTile<C>;  // with a causal mask the last tile takes longest
    const SequenceSpan& span = args.layout.spans[task / tiles / in.n()];
    if (first >= span.query_length) return;
    const ThreadMemory<C> memory(static_cast<char*>(args.workspace.data) + thread * thread_bytes, in.d(), in.dv());
    AttentionForwardTile<C> tile;
    in.set_tile<C>(span, head, first, memory.rows, tile);
    tile.scratch = memory.tile;
    tile.o = head_rows<TileTarget>(args.o, span.query_begin + first, span.batch, head);
    tile.lse = lse + statistics_index(args.lse, span.query_begin + first, span.batch, head);
    tile.lse_stride = args.lse.strides[2];
    tile.max_logit = max_logits.of(thread, head);
    attention_forward_tile<Isa>(tile);
  });
  max_logits.store();
}

}  // namespace

int64_t attention_forward_workspace_bytes(const CpuStream& stream, const AttentionForwardArgs& args) {
  const int64_t d = args.q.shape[3], dv = args.v.shape[3];
  return stream.num_threads * (args.q.dtype == DType::kFloat64 ? ThreadMemory<double>(nullptr, d, dv).pieces.bytes()
                                                               : ThreadMemory<float>(nullptr, d, dv).pieces.bytes());
}

void attention_forward_on(InstructionSet set, const CpuStream& stream, const AttentionForwardArgs& args) {
  dispatch_instruction_set(set, [&]<class Isa>() {
    if (args.q.dtype == DType::kFloat64)
      run_forward<double, Isa>(stream, args);
    else
      run_forward<float, Isa>(stream, args);
  });
}

void attention_forward(const CpuStream& stream, const AttentionForwardArgs& args) {
  require<NotSupported>(!args.options.is_dropout_of_cudnn || args.options.dropout == 0,
                        "[attention] cuDNN's dropout needs a GPU: leave out --cudnn-attention-dropout.");
  attention_forward_on(widest_instruction_set(), stream, args);
}

}  // namespace megatron::kernels
