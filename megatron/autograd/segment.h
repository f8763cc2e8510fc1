// The pieces of a model that a schedule addresses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/autograd/recompute.h"

namespace megatron {

/// A named run of layers between two borders. What crosses a border is a list of named tensors. `forward` gets the
/// number of the micro-batch and finds its data itself; it may run twice (recompute).
struct Segment {
  std::string name;
  std::vector<Parameter*> parameters;  // all parameters that it may use
  std::function<Payload(Context&, const Payload&, int micro_batch)> forward;
  bool recompute = false;
  bool offloads = false;  // saves values with SavePolicy::kOffload, which are to be copied beside kernels
};

/// The segments of one virtual stage.
using Chunk = std::vector<Segment>;

/// A tensor that crosses the border between two virtual stages; the same on both sides.
struct PayloadSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
};

}  // namespace megatron
