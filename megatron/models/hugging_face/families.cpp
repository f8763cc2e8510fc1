#include "megatron/models/hugging_face/families.h"

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/deepseek.h"
#include "megatron/models/hugging_face/gemma.h"
#include "megatron/models/hugging_face/gpt2.h"
#include "megatron/models/hugging_face/gpt_oss.h"
#include "megatron/models/hugging_face/granite.h"
#include "megatron/models/hugging_face/llama.h"
#include "megatron/models/hugging_face/mixtral.h"
#include "megatron/models/hugging_face/nemotron.h"
#include "megatron/models/hugging_face/olmo2.h"
#include "megatron/models/hugging_face/phi3.h"
#include "megatron/models/hugging_face/qwen.h"
#include "megatron/models/hugging_face/qwen_moe.h"
#include "megatron/models/hugging_face/starcoder2.h"

namespace megatron::hugging_face {

std::vector<Family> families() {
  return {deepseek_v2_family(), deepseek_v3_family(), gemma2_family(),    gemma3_text_family(), gpt2_family(),
          gpt_oss_family(),     granite_family(),     llama_family(),     mistral_family(),     mixtral_family(),
          nemotron_family(),    olmo2_family(),       phi3_family(),      qwen2_family(),       qwen2_moe_family(),
          qwen3_family(),       qwen3_moe_family(),   starcoder2_family()};
}

Family family_of(const Json& config, const std::string& source) {
  const std::string type =
      config.contains("model_type") && config["model_type"].is_string() ? config["model_type"].get<std::string>() : "";
  std::vector<std::string> names;
  for (Family& family : families()) {
    if (family.model_type == type) return std::move(family);
    names.push_back(family.model_type);
  }
  throw NotSupported(
      fmt::format("[hugging_face] {}: model_type is \"{}\". Supported are {}.", source, type, joined(names, ", ")));
}

}  // namespace megatron::hugging_face
