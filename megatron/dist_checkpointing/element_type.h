// Element types that files hold: more than the library computes with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "megatron/core/dtype.h"

namespace megatron {

/// In the order in which safetensors sorts them.
enum class ElementType : uint8_t {
  kBool,
  kFloat4,
  kFloat6E2M3,
  kFloat6E3M2,
  kUInt8,
  kInt8,
  kFloat8E5M2,
  kFloat8E4M3,
  kFloat8E8M0,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kInt16,
  kUInt16,
  kFloat16,
  kBFloat16,
  kInt32,
  kUInt32,
  kFloat32,
  kComplex64,
  kFloat64,
  kInt64,
  kUInt64,
  kComplex128
};

/// The names of one element type. An empty name: that format does not know the type.
struct ElementTypeInfo {
  ElementType type;
  int bits;
  std::string_view torch;        // attribute of the module torch: "bfloat16"
  std::string_view storage;      // typed storage class of torch: "BFloat16Storage"
  std::string_view safetensors;  // "BF16"
  std::optional<DType> dtype;    // what the library computes with
};

const ElementTypeInfo& info(ElementType type);
std::optional<ElementType> element_type_of_torch(std::string_view name);
std::optional<ElementType> element_type_of_storage(std::string_view name);
std::optional<ElementType> element_type_of_safetensors(std::string_view name);
ElementType element_type_of(DType dtype);

/// Bytes of one element. @throw NotSupported for types below one byte.
int64_t size_of(ElementType type);
/// "bfloat16": torch's name where there is one, else that of safetensors.
std::string_view name_of(ElementType type);

}  // namespace megatron

template <>
struct fmt::formatter<megatron::ElementType> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(megatron::ElementType type, fmt::format_context& context) const;
};
