#include "megatron/training/checkpoint/bucket_objects.h"

#include <fmt/core.h>

#include "megatron/dist_checkpointing/element_type.h"

namespace megatron {

std::string bucket_dtypes(const BufferPlan& plan) {
  const auto name = [](DType dtype) { return info(element_type_of(dtype)).torch; };
  return fmt::format("(torch.{}, torch.{})", name(plan.param_dtype), name(plan.grad_dtype));
}

namespace {

pickle::Object& dtypes_object(pickle::Graph& graph, const std::string& dtypes) {
  const size_t comma = dtypes.find(", torch.");
  constexpr size_t kOpen = std::string_view("(torch.").size(), kNext = std::string_view(", torch.").size();
  const std::string parameters = dtypes.substr(kOpen, comma - kOpen);
  const std::string gradients = dtypes.substr(comma + kNext, dtypes.size() - comma - kNext - 1);
  return graph.tuple({&graph.global("torch", parameters), &graph.global("torch", gradients)});
}

}  // namespace

pickle::Object& bucket_dtypes_object(pickle::Graph& graph, const BufferPlan& plan) {
  return dtypes_object(graph, bucket_dtypes(plan));
}

TorchObject bucket_sizes_object(const std::vector<std::pair<std::string, std::vector<int64_t>>>& buffers) {
  TorchObject object;
  pickle::Graph& graph = object.graph;
  std::vector<pickle::Object*> all;
  for (const auto& [dtypes, sizes] : buffers) {
    std::vector<pickle::Object*> numbers;
    for (const int64_t size : sizes) numbers.push_back(&graph.integer(size));
    pickle::Object& dict = graph.dict();
    dict.mutable_entries().push_back({&dtypes_object(graph, dtypes), &graph.list(std::move(numbers))});
    all.push_back(&dict);
  }
  object.root = &graph.list({&graph.list(std::move(all))});
  return object;
}

}  // namespace megatron
