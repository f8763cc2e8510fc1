// --help, --help WORD and --help=FLAG of pretrain_gpt.
#include <algorithm>

#include "megatron/base/command_help.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/config/unsupported_flags.h"

namespace megatron {
namespace {

/// True if the topic of a difference names the flag, and not only a flag that begins like it.
bool names(std::string_view topic, std::string_view flag) {
  const size_t found = topic.find(flag);
  if (found == std::string_view::npos) return false;
  const size_t end = found + flag.size();
  return end == topic.size() || topic[end] == ' ' || topic[end] == ',';
}

std::string differences_of(const Field& field) {
  std::string text;
  const std::vector<std::string> spellings = field.spellings();
  for (const Difference& difference : differences({})) {
    const bool is_named =
        std::ranges::any_of(spellings, [&](const auto& flag) { return names(difference.topic, flag); });
    if (is_named || difference.flag == field.spelling())
      text += fmt::format("  difference from Megatron-LM ({}):\n    Megatron-LM: {}\n    here: {}\n", difference.topic,
                          difference.megatron, difference.ours);
  }
  return text;
}

/// The introduction to the command of a family, which it names twice.
constexpr std::string_view kIntroduction =
    "usage: megatron pretrain_{0} FLAGS\n\n"
    "Trains {1}. Flags, defaults and rules are Megatron-LM's. A first run, on made-up data:\n\n"
    "  megatron pretrain_{0} --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 \\\n"
    "    --max-position-embeddings 64 --micro-batch-size 4 --train-iters 20 --lr 1e-3 --log-interval 1 \\\n"
    "    --mock-data --tokenizer-type NullTokenizer --vocab-size 256\n\n";

std::string text_of_refused(const std::string& flag) {
  const RefusedFlags refused = refused_flags();
  const auto reason = refused.find(flag);
  return reason == refused.end() ? "" : fmt::format("{}: {}\n", flag, reason->second);
}

}  // namespace

std::string help_text(const std::vector<std::string>& args, const ModelFamily& family) {
  PretrainConfig defaults = default_config(family);
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron pretrain_" + family.name,
                    .introduction = fmt::format(kIntroduction, family.name, family.description),
                    .table = table,
                    .more_about_field = differences_of,
                    .more_about_word = unsupported_flags_help,
                    .about_other_flag = text_of_refused},
                   args);
}

}  // namespace megatron
