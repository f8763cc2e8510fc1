#include "megatron/dist_checkpointing/torch_tensor.h"

#include <limits>
#include <span>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Arguments = std::span<pickle::Object* const>;

constexpr size_t kNumRebuildArguments = 6;  // storage, offset, size, stride, requires_grad, hooks; version 3: dtype too

/// The bytes of the largest tensor are below 2^63 even at 16 bytes an element.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 16;

int64_t last_element(const TorchTensor& tensor) {
  int64_t last = tensor.offset;
  for (int dim = 0; dim < tensor.shape.rank(); ++dim) {
    int64_t step = 0;
    const bool overflow = __builtin_mul_overflow(tensor.shape[dim] - 1, tensor.strides[dim], &step) ||
                          __builtin_add_overflow(last, step, &last);
    require<CheckpointError>(!overflow, "[torch tensor] shape {} with strides {} is beyond any storage", tensor.shape,
                             tensor.strides);
  }
  return last;
}

/// ("storage", class, name, device, number of elements); the class of an untyped storage counts bytes.
void read_storage(const pickle::Object& id, std::optional<ElementType> dtype, TorchTensor& tensor) {
  const auto parts = id.persistent_id().items();
  require<CheckpointError>(parts.size() == 5 && parts[0]->as_string() == "storage",
                           "[torch tensor] its storage is not described by five values");
  const std::string& storage_class = parts[1]->global_name();
  tensor.storage = parts[2]->as_string();
  const int64_t num_elements = parts[4]->as_int();
  const bool untyped = storage_class == "UntypedStorage";
  const auto type = untyped ? dtype : element_type_of_storage(storage_class);
  require<CheckpointError>(type.has_value(), "[torch tensor] storage class {} is unknown", storage_class);
  tensor.type = *type;
  const int64_t element_bytes = untyped ? 1 : size_of(*type);
  require<CheckpointError>(num_elements >= 0 && num_elements <= kMaxElements, "[torch tensor] a storage of {} elements",
                           num_elements);
  tensor.storage_bytes = num_elements * element_bytes;
}

TorchTensor rebuild(const pickle::Object& function, Arguments arguments) {
  const bool has_dtype = function.is_global("torch._utils", "_rebuild_tensor_v3");
  require<CheckpointError>(arguments.size() >= kNumRebuildArguments + has_dtype,
                           "[torch tensor] rebuilt from {} values", arguments.size());
  std::optional<ElementType> dtype;
  if (has_dtype) dtype = element_type_of_torch(arguments[kNumRebuildArguments]->global_name());
  TorchTensor tensor;
  read_storage(*arguments[0], dtype, tensor);
  tensor.offset = arguments[1]->as_int();
  tensor.shape = torch_size(*arguments[2]);
  tensor.strides = torch_size(*arguments[3]);
  require<CheckpointError>(tensor.offset >= 0 && tensor.shape.rank() == tensor.strides.rank(),
                           "[torch tensor] shape {}, strides {}, offset {} do not fit", tensor.shape, tensor.strides,
                           tensor.offset);
  if (checked_num_elements(tensor.shape) == 0) return tensor;
  const int64_t capacity = tensor.storage_bytes / size_of(tensor.type);
  require<CheckpointError>(last_element(tensor) < capacity,
                           "[torch tensor] shape {}, strides {}, offset {} reach beyond a storage of {} elements",
                           tensor.shape, tensor.strides, tensor.offset, capacity);
  return tensor;
}

bool rebuilds_tensor(const pickle::Object& function) {
  return function.is_global("torch._utils", "_rebuild_tensor_v2") ||
         function.is_global("torch._utils", "_rebuild_tensor_v3");
}

}  // namespace

std::optional<TorchTensor> torch_tensor(const pickle::Object& object) {
  if (object.kind() != pickle::Kind::kReduce) return std::nullopt;
  const pickle::Object& function = *object.instance().callable;
  const Arguments arguments = object.instance().arguments->items();
  if (rebuilds_tensor(function)) return rebuild(function, arguments);
  // A parameter is a call with a tensor; a buffer or another subclass a call with a tensor's function and arguments.
  if (function.is_global("torch._utils", "_rebuild_parameter") && !arguments.empty() &&
      arguments[0]->kind() == pickle::Kind::kReduce && rebuilds_tensor(*arguments[0]->instance().callable))
    return torch_tensor(*arguments[0]);
  if (function.is_global("torch._tensor", "_rebuild_from_type_v2") && arguments.size() >= 3 &&
      rebuilds_tensor(*arguments[0]))
    return rebuild(*arguments[0], arguments[2]->items());
  return std::nullopt;
}

Shape torch_size(const pickle::Object& object) {
  const pickle::Object* values = &object;
  if (object.is_instance_of("torch", "Size")) {
    require<CheckpointError>(object.instance().arguments->items().size() == 1, "[torch tensor] torch.Size of no tuple");
    values = object.instance().arguments->items()[0];
  }
  const Arguments items = values->items();
  require<CheckpointError>(items.size() <= Shape::kMaxRank, "[torch tensor] {} dimensions; at most {} are supported",
                           items.size(), Shape::kMaxRank);
  int64_t sizes[Shape::kMaxRank];
  for (size_t dim = 0; dim < items.size(); ++dim) {
    sizes[dim] = items[dim]->as_int();
    require<CheckpointError>(sizes[dim] >= 0, "[torch tensor] a size, stride or offset of {}", sizes[dim]);
  }
  return Shape(std::span<const int64_t>(sizes, items.size()));
}

int64_t checked_num_elements(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape)
    require<CheckpointError>(!__builtin_mul_overflow(product, size, &product) && product <= kMaxElements,
                             "[torch tensor] shape {} is beyond any memory", shape);
  return product;
}

}  // namespace megatron
