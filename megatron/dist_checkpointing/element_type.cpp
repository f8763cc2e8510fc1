#include "megatron/dist_checkpointing/element_type.h"

#include <algorithm>
#include <array>

namespace megatron {
namespace {

using enum ElementType;

// Types without a storage class of their own are stored untyped, with the dtype beside them.
constexpr std::array kTypes = {
    ElementTypeInfo{kBool, 8, "bool", "BoolStorage", "BOOL", {}},
    ElementTypeInfo{kFloat4, 4, "", "", "F4", {}},
    ElementTypeInfo{kFloat6E2M3, 6, "", "", "F6_E2M3", {}},
    ElementTypeInfo{kFloat6E3M2, 6, "", "", "F6_E3M2", {}},
    ElementTypeInfo{kUInt8, 8, "uint8", "ByteStorage", "U8", DType::kUInt8},
    ElementTypeInfo{kInt8, 8, "int8", "CharStorage", "I8", {}},
    ElementTypeInfo{kFloat8E5M2, 8, "float8_e5m2", "", "F8_E5M2", DType::kFloat8E5M2},
    ElementTypeInfo{kFloat8E4M3, 8, "float8_e4m3fn", "", "F8_E4M3", DType::kFloat8E4M3},
    ElementTypeInfo{kFloat8E8M0, 8, "float8_e8m0fnu", "", "F8_E8M0", {}},
    ElementTypeInfo{kFloat8E4M3FNUZ, 8, "float8_e4m3fnuz", "", "F8_E4M3FNUZ", {}},
    ElementTypeInfo{kFloat8E5M2FNUZ, 8, "float8_e5m2fnuz", "", "F8_E5M2FNUZ", {}},
    ElementTypeInfo{kInt16, 16, "int16", "ShortStorage", "I16", {}},
    ElementTypeInfo{kUInt16, 16, "uint16", "", "U16", {}},
    ElementTypeInfo{kFloat16, 16, "float16", "HalfStorage", "F16", DType::kFloat16},
    ElementTypeInfo{kBFloat16, 16, "bfloat16", "BFloat16Storage", "BF16", DType::kBFloat16},
    ElementTypeInfo{kInt32, 32, "int32", "IntStorage", "I32", DType::kInt32},
    ElementTypeInfo{kUInt32, 32, "uint32", "", "U32", {}},
    ElementTypeInfo{kFloat32, 32, "float32", "FloatStorage", "F32", DType::kFloat32},
    ElementTypeInfo{kComplex64, 64, "complex64", "ComplexFloatStorage", "C64", {}},
    ElementTypeInfo{kFloat64, 64, "float64", "DoubleStorage", "F64", DType::kFloat64},
    ElementTypeInfo{kInt64, 64, "int64", "LongStorage", "I64", DType::kInt64},
    ElementTypeInfo{kUInt64, 64, "uint64", "", "U64", {}},
    ElementTypeInfo{kComplex128, 128, "complex128", "ComplexDoubleStorage", "", {}},
};
static_assert(std::ranges::is_sorted(kTypes, {}, &ElementTypeInfo::type), "info() indexes by the enumerator");

template <class Field, class Value>
std::optional<ElementType> find(Field field, const Value& value) {
  const auto found = std::ranges::find(kTypes, value, field);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::optional<ElementType> find_name(std::string_view ElementTypeInfo::*field, std::string_view name) {
  return name.empty() ? std::nullopt : find(field, name);
}

}  // namespace

const ElementTypeInfo& info(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<ElementType> element_type_of_torch(std::string_view name) {
  return find_name(&ElementTypeInfo::torch, name);
}
std::optional<ElementType> element_type_of_storage(std::string_view name) {
  return find_name(&ElementTypeInfo::storage, name);
}
std::optional<ElementType> element_type_of_safetensors(std::string_view name) {
  return find_name(&ElementTypeInfo::safetensors, name);
}

ElementType element_type_of(DType dtype) { return find(&ElementTypeInfo::dtype, std::optional(dtype)).value(); }

std::string_view name_of(ElementType type) {
  return info(type).torch.empty() ? info(type).safetensors : info(type).torch;
}

int64_t size_of(ElementType type) {
  const int bits = info(type).bits;
  require<NotSupported>(bits % 8 == 0, "[checkpoint] elements of type {} are smaller than a byte",
                        info(type).safetensors);
  return bits / 8;
}

}  // namespace megatron

fmt::format_context::iterator fmt::formatter<megatron::ElementType>::format(megatron::ElementType type,
                                                                            fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", megatron::name_of(type));
}
