#include "megatron/models/batch.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

template <class Named>
const Named& found(const std::vector<Named>& all, std::string_view name, std::string_view kind) {
  const auto place = std::ranges::find(all, name, &Named::name);
  if (place != all.end()) return *place;
  std::string names;
  for (const Named& item : all) names += " " + item.name;
  throw InternalError(fmt::format("[batch] the model asks for the {} '{}'; the batch has:{}.", kind, name, names));
}

}  // namespace

const Tensor& Batch::tensor(std::string_view name) const { return found(tensors, name, "tensor").tensor; }

Tensor Batch::optional_tensor(std::string_view name) const {
  const auto place = std::ranges::find(tensors, name, &NamedTensor::name);
  return place == tensors.end() ? Tensor() : place->tensor;
}

const SequenceLayout& Batch::layout(std::string_view name) const { return found(layouts, name, "layout").layout; }

}  // namespace megatron
