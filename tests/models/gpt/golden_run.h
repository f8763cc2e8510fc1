// Golden models of tests/golden/training with their weights and batch, and what a forward and backward pass gives.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

/// Calls the function for each case of these files of tests/golden, such as "training/models.json".
void for_each_golden_case(std::initializer_list<const char*> files,
                          const std::function<void(const nlohmann::json&)>& function);

/// Megatron's values of one of our parameters: those of its name, or those of all experts one after the other.
/// @param kind  "param/", "grad/" or "buffer/"
std::vector<double> golden_values(const GoldenTensors& tensors, const std::string& kind, const std::string& name);

/// Every element lies within the rounding of fp32, in which the reference computes, on sums of `length` terms.
void expect_golden(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                   const std::string& what);

/// Values of [s, b, ...] in the order [b, s, ...].
std::vector<double> batch_first(const Tensor& x);

struct GoldenRunOptions {
  int64_t num_padding_rows = 0;  // of the vocabulary
  bool recompute = false;        // all activations of each layer
};

/// A model with its weights, batch and gradient buffer.
struct GoldenRun {
  GoldenRun(const nlohmann::json& description, DType dtype, const GoldenRunOptions& options = {});

  /// Forward and backward of the whole model on one tape. @return the mean loss.
  double run();
  /// Forward and backward of its segments, as in training. @return the mean loss.
  double run_segments();

  int64_t s() const { return batch.layout("tokens").s(); }
  int64_t b() const { return batch.layout("tokens").b(); }
  /// See golden_case.h.
  int64_t length_there() const;
  int64_t length_there_and_back() const;
  /// The length of a loss, whose softmax adds over the vocabulary.
  int64_t length_of_loss() const { return length_there() + config.vocab_size; }

  TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  nlohmann::json test;
  TransformerConfig config;
  GoldenTensors tensors;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<ParamAndGradBuffer> buffer;
  Batch batch;  // with an accumulator for each metric of the model
  double num_tokens = 0;
};

}  // namespace megatron::testing
