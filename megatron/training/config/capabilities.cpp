// Rejects what this version cannot run, by the limits that the fields have.
#include "megatron/base/word_list.h"
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

std::string given_as(const Field& field) {
  if (field.kind == WordKind::kSwitch) return field.spelling();
  return fmt::format("{} {}", field.spelling(), python_text(field.get()));
}

}  // namespace

void require_runnable(const PretrainConfig& config) {
  PretrainConfig copy = config, defaults = default_config(config.family);
  FieldTable default_table = describe(defaults);
  std::vector<std::string> exceeded;
  describe(copy).for_each([&](const Field& field) {
    if (!field.not_yet.empty() && field.get() != default_table.find(field.name)->get())
      exceeded.push_back(fmt::format("{}: {}", given_as(field), field.not_yet));
    for (const FieldLimit& limit : field.limits)
      if (limit.is_exceeded()) exceeded.push_back(limit.text);
  });
  require<NotSupported>(exceeded.empty(), "valid, but this version of megatron.cpp cannot run it yet: {}",
                        joined(exceeded, "; "));
}

}  // namespace megatron
