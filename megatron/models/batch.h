// The data of one micro-batch in device memory, by name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"

namespace megatron {

struct NamedLayout {
  std::string name;
  SequenceLayout layout;
};

/// Named tensors, and the layouts of the sequences that their rows form. A segment looks each name up once
/// in its forward. A batch must stay where it is until its backward has ended.
struct Batch {
  std::vector<NamedTensor> tensors;
  std::vector<NamedLayout> layouts;

  /// @throw InternalError if there is no tensor of this name.
  const Tensor& tensor(std::string_view name) const;
  /// The tensor of this name; undefined if there is none.
  Tensor optional_tensor(std::string_view name) const;
  /// @throw InternalError if there is no layout of this name.
  const SequenceLayout& layout(std::string_view name) const;
};
using Batches = std::function<const Batch&(int micro_batch)>;

}  // namespace megatron
