#include "megatron/kernels/cpu/attention.h"
#include "megatron/kernels/cpu/attention_inputs.h"

namespace megatron::kernels {
namespace {

/// Memory of one thread: a tile, and the sums of one key head's gradients over all queries that attend to its keys.
template <class C>
struct ThreadMemory {
  ThreadMemory(char* data, int64_t num_keys, int64_t d, int64_t dv)
      : pieces(data),
        rows(pieces.take<int64_t>(kQueryTile<C>)),
        tile(pieces.take<char>(AttentionBackwardScratch<C>(nullptr, d, dv).pieces.bytes())),
        grad_k(pieces.take<C>(num_keys * tile_width<C>(d))),
        grad_v(pieces.take<C>(num_keys * tile_width<C>(dv))) {}
  TileScratch pieces;
  int64_t* rows;
  void* tile;
  C *grad_k, *grad_v;
};

template <class C>
struct Workspace {
  Workspace(void* data, const CpuStream& stream, const AttentionBackwardArgs& args)
      : num_keys(args.k.shape[0]), d(args.q.shape[3]), dv(args.v.shape[3]), pieces(data) {
    thread_bytes = ThreadMemory<C>(nullptr, num_keys, d, dv).pieces.bytes();
    grad_sinks = pieces.take<C>(args.q.shape[1] * args.q.shape[2]);
    threads = pieces.take<char>(stream.num_threads * thread_bytes);
  }
  ThreadMemory<C> of_thread(int64_t thread) const { return {threads + thread * thread_bytes, num_keys, d, dv}; }

  int64_t num_keys, d, dv, thread_bytes = 0;
  TileScratch pieces;
  C* grad_sinks;  // [b, n]
  char* threads;
};

/// All gradients of one column and key head, except for the sink's, which is added to `grad_sinks` [n].
template <class C, class Isa>
void differentiate_group(const AttentionInputs& in, const AttentionBackwardArgs& args, int64_t column, int64_t group,
                         const ThreadMemory<C>& memory, C* grad_sinks) {
  const int64_t num_keys = in.k.shape[0], k_width = tile_width<C>(in.d()), v_width = tile_width<C>(in.dv());
  std::fill_n(memory.grad_k, num_keys * k_width, C{0});
  std::fill_n(memory.grad_v, num_keys * v_width, C{0});
  const bool has_uncovered_rows = in.has_uncovered_rows(column);
  for (int64_t head = group * in.heads_per_group(); head < (group + 1) * in.heads_per_group(); ++head) {
    if (has_uncovered_rows) zero_rows(args.grad_q, column, head);
    grad_sinks[head] = 0;
    for (int64_t i = 0; i < in.layout.num_spans; ++i) {
      const SequenceSpan& span = in.layout.spans[i];
      if (span.batch != column) continue;
      for (int64_t first = 0; first < span.query_length; first += kQueryTile<C>) {
        const int64_t row = span.query_begin + first;
        AttentionBackwardTile<C> tile;
        in.set_tile<C>(span, head, first, memory.rows, tile);
        tile.scratch = memory.tile;
        tile.o = head_rows<TileRows>(args.o, row, column, head);
        tile.grad_o = head_rows<TileRows>(args.grad_o, row, column, head);
        tile.lse = args.lse.as<C>() + statistics_index(args.lse, row, column, head);
        tile.lse_stride = args.lse.strides[2];
        tile.grad_q = head_rows<TileTarget>(args.grad_q, row, column, head);
        tile.grad_k = memory.grad_k + span.key_begin * k_width;
        tile.grad_v = memory.grad_v + span.key_begin * v_width;
        tile.grad_sink = args.grad_sink.defined() ? grad_sinks + head : nullptr;
        attention_backward_tile<Isa>(tile);
      }
    }
  }
  attention_store_sums<Isa>(memory.grad_k, num_keys, in.d(), static_cast<C>(in.options.scale),
                            head_rows<TileTarget>(args.grad_k, 0, column, group));
  attention_store_sums<Isa>(memory.grad_v, num_keys, in.dv(), C{1},
                            head_rows<TileTarget>(args.grad_v, 0, column, group));
}

/// Adds the columns' sums in order.
template <class C>
void store_grad_sink(const View& grad_sink, const C* grad_sinks, int64_t b) {
  const int64_t n = grad_sink.shape[0];
  dispatch_floating(grad_sink.dtype, [&]<class T>() {
    for (int64_t head = 0; head < n; ++head) {
      C sum = 0;
      for (int64_t column = 0; column < b; ++column) sum += grad_sinks[column * n + head];
      grad_sink.as<T>()[head] = static_cast<T>(sum);
    }
  });
}

template <class C, class Isa>
void run_backward(const CpuStream& stream, const AttentionBackwardArgs& args) {
  const AttentionInputs in{args.q, args.k, args.v, args.sink, args.layout, args.options};
  in.check(args.o);
  in.check(args.grad_o);
  const Workspace<C> workspace(args.workspace.data, stream, args);
  const int64_t groups = in.k.shape[2], num_tasks = in.b() * groups;
  const int team = attention_team(stream, num_tasks, 5 * in.num_pairs() * (in.d() + in.dv()));
  for_each_task(team, num_tasks, [&](int64_t task, int64_t thread) {
    const int64_t column = task / groups;
    differentiate_group<C, Isa>(in, args, column, task % groups, workspace.of_thread(thread),
                                workspace.grad_sinks + column * in.n());
  });
  if (args.grad_sink.defined()) store_grad_sink(args.grad_sink, workspace.grad_sinks, in.b());
}

}  // namespace

int64_t attention_backward_workspace_bytes(const CpuStream& stream, const AttentionBackwardArgs& args) {
  return args.q.dtype == DType::kFloat64 ? Workspace<double>(nullptr, stream, args).pieces.bytes()
                                         : Workspace<float>(nullptr, stream, args).pieces.bytes();
}

void attention_backward_on(InstructionSet set, const CpuStream& stream, const AttentionBackwardArgs& args) {
  dispatch_instruction_set(set, [&]<class Isa>() {
    if (args.q.dtype == DType::kFloat64)
      run_backward<double, Isa>(stream, args);
    else
      run_backward<float, Isa>(stream, args);
  });
}

void attention_backward(const CpuStream& stream, const AttentionBackwardArgs& args) {
  require<NotSupported>(!args.options.is_dropout_of_cudnn || args.options.dropout == 0,
                        "[attention] cuDNN's dropout needs a GPU: leave out --cudnn-attention-dropout.");
  attention_backward_on(widest_instruction_set(), stream, args);
}

}  // namespace megatron::kernels
