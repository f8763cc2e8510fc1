#include "tests/models/gpt/golden_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/core/copy.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/golden_moe.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

TransformerConfig config_of(const Json& test, DType dtype, const GoldenRunOptions& options) {
  Json transformer = test["config"];
  std::optional<MoeConfig> moe;
  if (transformer.contains("num_moe_experts")) {
    moe = take_moe_config(transformer);
    if (transformer.contains("moe_layer_freq"))
      moe->layer_freq = {.interval = 0, .per_layer = transformer["moe_layer_freq"].get<std::vector<int64_t>>()};
    transformer.erase("moe_layer_freq");
  }
  TransformerConfig config = golden_config(transformer, test["model"], test["yarn"]);
  if (moe && moe->ffn_hidden_size == 0) moe->ffn_hidden_size = config.ffn_hidden_size;
  config.moe = moe;
  config.params_dtype = dtype;
  config.padded_vocab_size += options.num_padding_rows;
  if (options.recompute) {
    config.recompute_granularity = RecomputeGranularity::kFull;
    config.recompute_method = RecomputeMethod::kUniform;
    config.recompute_num_layers = 1;
  }
  return config;
}

}  // namespace

void for_each_golden_case(std::initializer_list<const char*> files, const std::function<void(const Json&)>& function) {
  for (const char* file : files) {
    const Json cases = golden_json(file, "cases");
    ASSERT_FALSE(cases.empty()) << file;
    for (const Json& test : cases) {
      SCOPED_TRACE(test["name"].get<std::string>());
      function(test);
    }
  }
}

std::vector<double> golden_values(const GoldenTensors& tensors, const std::string& kind, const std::string& name) {
  const std::string stacked = ".experts.experts.";
  const size_t place = name.find(stacked);
  if (place == std::string::npos) return tensors.values(kind + name);
  const std::vector<std::string> names = tensors.names();
  std::vector<double> values;
  for (int expert = 0;; ++expert) {
    const std::string one = kind + name.substr(0, place) + fmt::format(".experts.local_experts.{}.", expert) +
                            name.substr(place + stacked.size());
    if (std::find(names.begin(), names.end(), one) == names.end()) return values;
    const std::vector<double> more = tensors.values(one);
    values.insert(values.end(), more.begin(), more.end());
  }
}

void expect_golden(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                   const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0, error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::isnan(actual[i]) ? HUGE_VAL : std::abs(actual[i] - expected[i]));
  }
  EXPECT_LE(error, tolerance(DType::kFloat32, length, largest)) << what;
}

std::vector<double> batch_first(const Tensor& x) {
  const std::vector<double> values = values_of(x);
  const int64_t s = x.size(0), b = x.size(1), row = x.num_elements() / (s * b);
  std::vector<double> result;
  for (int64_t j = 0; j < b; ++j)
    for (int64_t i = 0; i < s; ++i)
      result.insert(result.end(), values.begin() + (i * b + j) * row, values.begin() + (i * b + j + 1) * row);
  return result;
}

GoldenRun::GoldenRun(const Json& description, DType dtype, const GoldenRunOptions& options)
    : test(description),
      config(config_of(test, dtype, options)),
      tensors("training/" + test["file"].get<std::string>()) {
  model = std::make_unique<GptModel>(
      ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
  buffer = std::make_unique<ParamAndGradBuffer>(ctx, model->parameters(), dtype);
  for (Parameter* parameter : model->parameters()) {
    if (options.num_padding_rows > 0) fill_uniform(ctx, parameter->value(), parameter->name());
    store(golden_values(tensors, parameter->is_trainable() ? "param/" : "buffer/", parameter->name()),
          parameter->value());
  }
  batch = golden_batch(ctx, tensors);
  for (const MetricSpec& metric : model->metrics()) {
    Tensor sums = ctx.empty(metric.name, {metric.size}, metric.dtype, MemoryUse::kData);
    fill_zero(ctx.device, sums.data<double>(), sums.bytes());
    batch.tensors.push_back({metric.name, sums});
  }
  for (double mask : tensors.values("loss_mask")) num_tokens += mask;
  device.step.loss_seed = 1 / num_tokens;
}

double GoldenRun::run() {
  Tape tape(ctx.device);
  Context training = ctx;
  training.tape = &tape;
  training.mode = GradMode::kRecord;
  buffer->begin_step();
  model->begin_step(ctx);
  const Tensor loss = model->loss(training, batch);
  Tensor seed = ctx.empty("seed", {1}, DType::kFloat64);
  *seed.data<double>() = device.step.loss_seed;
  tape.seed(training, loss.slot, std::move(seed));
  tape.backward(training, Phase::kBW, 0);
  buffer->finish_step(ctx);
  return *loss.data<double>() / num_tokens;
}

double GoldenRun::run_segments() {
  double mean_loss = 0;
  const auto batches = [&](int) -> const Batch& { return batch; };
  const ExecutorOptions options{.chunks = model->chunks(batches), .losses = model->losses()};
  Executor executor(ctx, options);
  executor.on_output = [&](const Payload& output, int) {
    mean_loss = *at(output, GptStage::kLoss).data<double>() / num_tokens;
  };
  buffer->begin_step();
  model->begin_step(ctx);
  executor.run(one_f_one_b(0, 1, 1, WeightGradient::kFused));
  buffer->finish_step(ctx);
  return mean_loss;
}

int64_t GoldenRun::length_there() const { return testing::length_there(config, s()); }
int64_t GoldenRun::length_there_and_back() const { return testing::length_there_and_back(config, s(), b()); }

}  // namespace megatron::testing
