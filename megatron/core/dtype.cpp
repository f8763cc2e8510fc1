#include "megatron/core/dtype.h"

namespace megatron {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kInt64:
      return "int64";
    case DType::kInt32:
      return "int32";
    case DType::kUInt8:
      return "uint8";
    case DType::kFloat8E4M3:
      return "float8_e4m3fn";
    case DType::kFloat8E5M2:
      return "float8_e5m2";
  }
  return "unknown";
}

}  // namespace megatron

fmt::format_context::iterator fmt::formatter<megatron::DType>::format(megatron::DType dtype,
                                                                      fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", megatron::name_of(dtype));
}
