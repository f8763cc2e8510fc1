// A kernel of a training step to measure: its calls in a step, its operations and bytes, and a function to run
// it; where Transformer Engine has the same op, a way to run that.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/bench/bench_device.h"

namespace megatron {

/// The bound of a kernel: arithmetic, or memory bandwidth.
enum class KernelKind { kProduct, kAttention, kMemory };

/// A call of a kernel with operands that it keeps.
using KernelCall = std::function<void()>;

class TransformerEngine;

/// A result of two libraries. Both compute it in fp32.
struct PeerResult {
  std::string name;  // "dx"
  Tensor ours, theirs;
  DType rounded = DType::kFloat32;  // the coarser dtype of the two results
  int64_t length = 1;               // terms of its sums
};

/// The same op by Transformer Engine, and by us: on the same inputs, with outputs of their own.
struct PeerCall {
  KernelCall theirs;
  KernelCall ours;  // the same part of the op as theirs
  std::vector<PeerResult> results;
};

struct KernelCase {
  std::string name;  // "fc1 forward"
  KernelKind kind = KernelKind::kMemory;
  double calls = 1;       // in a step of one rank; a fraction if the case is a part of a larger call
  double operations = 0;  // of a call: multiplications and additions
  double bytes = 0;       // of a call: each operand read once, each result written once
  std::function<KernelCall(const Context&)> prepare;  // with operands of its own
  /// Transformer Engine's call, with operands of its own; none if it has no such function.
  std::function<PeerCall(const Context&, const TransformerEngine&)> peer;
  std::string peer_note;  // difference of its call from ours: "without the bias"
};

/// Seconds of repeated calls.
struct Timing {
  double best = 0, median = 0;
  double spread = 0;  // between the quartiles, as part of the median
  int64_t num_calls = 0;
};
/// @param seconds  at least one
Timing timing_of(std::vector<double> seconds);

struct MeasureOptions {
  int64_t warm_ups = 2;
  int64_t repeats = 20;        // at most
  int64_t fewest_repeats = 3;  // are timed in any case
  double seconds = 0.5;        // limit for the repeats of one case
  int64_t rotation_bytes = 0;  // operands change from call to call until this much memory is in use
};

/// Runs the kernel alone. Calls alternate between sets of operands, so that caches below rotation_bytes are cold.
Timing measure(BenchDevice& bench, const KernelCase& kernel, const MeasureOptions& options);

/// Bytes a second of a copy, read and written, between arrays of rotation_bytes, 16 MiB at least.
double measure_copy_bandwidth(BenchDevice& bench, const MeasureOptions& options);

}  // namespace megatron
