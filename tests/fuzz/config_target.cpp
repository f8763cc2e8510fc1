#include <string_view>

#include "megatron/base/error.h"
#include "megatron/models/hugging_face/config_reader.h"
#include "megatron/models/hugging_face/families.h"
#include "tests/fuzz/fuzz_targets.h"

namespace megatron::testing {

void fuzz_config_json(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const hugging_face::Json json = hugging_face::Json::parse(text, nullptr, false);
  require<CheckpointError>(json.is_object(), "no JSON object");
  const hugging_face::Family family = hugging_face::family_of(json, "input");
  hugging_face::arguments_of(family, json, "input");
}

}  // namespace megatron::testing
