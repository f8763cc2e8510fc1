// Data-parallel messages of a step against those of Megatron Core on four ranks (tests/golden/parallelism).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;
/// Kind and elements of a rank's input.
using Call = std::pair<CommOp, int64_t>;

TransformerConfig config_of(const Json& step) {
  TransformerConfig config;
  config.num_layers = step["layers"];
  config.hidden_size = step["h"];
  config.ffn_hidden_size = step["ffn"];
  config.num_attention_heads = step["heads"];
  config.num_query_groups = step["query_groups"];
  config.kv_channels = config.hidden_size / config.num_attention_heads;
  config.vocab_size = config.padded_vocab_size = step["vocab"];
  config.max_sequence_length = step["s"];
  if (step["model"] == "A") return config;
  config.normalization = Normalization::kRMSNorm;
  config.position_embedding_type = PositionEmbeddingType::kRope;
  config.activation_func = ActivationFunc::kSilu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.share_embeddings_and_output_weights = false;
  return config;
}

std::vector<Call> expected_calls(const Json& step) {
  std::vector<Call> calls;
  for (const char* phase : {"finalize", "gather"})
    for (const Json& call : step["phases"][phase]) {
      if (call[1] != "dp_cp") continue;
      const std::string kind = call[0];
      calls.emplace_back(kind == "AR"   ? CommOp::kAllReduce
                         : kind == "RS" ? CommOp::kReduceScatter
                                        : CommOp::kAllGather,
                         call[2]);
    }
  return calls;
}

TEST(CollectivesGolden, GradientsAndWeightsMoveAsInMegatron) {
  const Json steps = golden_json("parallelism/collectives.json", "steps");
  ASSERT_EQ(steps.size(), 16U);
  int num_compared = 0;
  for (const Json& step : steps) {
    if (step["dp"] == 1) continue;  // nothing to reduce
    ++num_compared;
    TestDevice test(DeviceKind::kMeta);
    const Context ctx = test.context();
    MetaWorld world(0, 4);
    const ProcessGroupCollection groups = ProcessGroupCollection::make(
        world, ParallelLayout({.world_size = 4, .tensor_model_parallel_size = step["tp"]}));
    const TransformerConfig config = config_of(step);
    const GptModel model({.ctx = ctx, .config = config, .groups = groups, .path = ""});
    DistributedDataParallel ddp(ctx, {model.parameters()}, groups, {.use_distributed_optimizer = step["dist_opt"]});
    const int64_t first = world.recorder().num_operations();
    ddp.begin_step();
    ddp.finish_grad_sync();
    ddp.start_param_sync();
    ddp.finish_param_sync();
    std::vector<Call> calls;
    for (const OperationRecord& record : world.recorder().since(first))
      calls.emplace_back(record.op, record.num_elements);
    EXPECT_EQ(calls, expected_calls(step)) << step["model"] << " tp " << step["tp"] << " sharded " << step["dist_opt"];
  }
  EXPECT_EQ(num_compared, 12);
}

}  // namespace
}  // namespace megatron::testing
