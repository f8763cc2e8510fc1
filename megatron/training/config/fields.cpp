#include "megatron/training/config/fields.h"

namespace megatron {

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
  return table;
}

}  // namespace megatron
