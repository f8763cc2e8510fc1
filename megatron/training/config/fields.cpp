#include "megatron/training/config/fields.h"

#include <algorithm>
#include <string>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Two fields of a name would be one argument in checkpoints.
void describe_family(FieldTable& table, PretrainConfig& config) {
  std::vector<std::string> names;
  table.for_each([&](const Field& field) { names.push_back(field.name); });
  config.family.options.describe(table);
  size_t number = 0;
  table.for_each([&](const Field& field) {
    if (++number <= names.size()) return;
    require<InternalError>(std::ranges::find(names, field.name) == names.end(),
                           "[pretrain_{}] the family has a setting '{}' of its own, but all families have one of this "
                           "name. Give it another name.",
                           config.family.name, field.name);
  });
}

}  // namespace

FieldTable describe(PretrainConfig& config) {
  FieldTable table;
  describe_model(table, config);
  describe_offload(table, config);
  describe_training(table, config);
  describe_data(table, config);
  describe_optimizer(table, config);
  describe_checkpoint(table, config);
  describe_logging(table, config);
  describe_profiling(table, config);
  describe_faults(table, config);
  describe_parallel(table, config);
  describe_no_effect(table, config);
  describe_family(table, config);
  return table;
}

}  // namespace megatron
