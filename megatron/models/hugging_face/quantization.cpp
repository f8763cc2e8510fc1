#include "megatron/models/hugging_face/quantization.h"

#include "megatron/models/hugging_face/config_reader.h"

namespace megatron::hugging_face {
namespace {

/// Says whether `block` is absent or two whole numbers above 0.
bool are_block_sizes(const Json& block) {
  if (block.is_null()) return true;
  const auto is_size = [](const Json& size) { return size.is_number_integer() && size.get<int64_t>() > 0; };
  return block.is_array() && block.size() == 2 && is_size(block[0]) && is_size(block[1]);
}

/// The text at `key`; none if something else or nothing stands there.
std::optional<std::string> text_at(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return std::nullopt;
  return object[key].get<std::string>();
}

}  // namespace

std::optional<Quantization> quantization_of(const Json& config) {
  const Json given = config.value(kQuantizationConfig, Json());
  if (given.is_null()) return std::nullopt;
  if (text_at(given, "quant_method") == "mxfp4") return Quantization{.method = QuantizationMethod::kMxfp4};
  Quantization quantization;
  if (const Json block = given.value("weight_block_size", Json()); !block.is_null()) {
    quantization.block_rows = block[0].get<int64_t>();
    quantization.block_columns = block[1].get<int64_t>();
  }
  return quantization;
}

void check_quantization(ConfigReader& config) {
  const Json& given = config.at(kQuantizationConfig);
  if (given.is_null()) return;
  const auto value = [&](const char* key) { return given.is_object() ? given.value(key, Json()) : Json(); };
  const auto method = text_at(given, "quant_method");
  const bool is_fp8 = method == "fp8" && (value("fmt").is_null() || text_at(given, "fmt") == "e4m3") &&
                      are_block_sizes(value("weight_block_size"));
  if (!is_fp8 && method != "mxfp4")
    config.reject("{} is {}; supported: quant_method \"fp8\" with fmt \"e4m3\" and a weight_block_size, and \"mxfp4\"",
                  kQuantizationConfig, given.dump());
}

}  // namespace megatron::hugging_face
