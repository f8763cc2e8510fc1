// The kernel ceiling of a training step: how long the matrix products of a GPT's linear layers take when nothing else
// runs. Forward, dgrad and wgrad of each kind of layer are timed alone, the best of several calls is taken, and the
// times are added up as often as a step has them. Attention is not part of it.
//   gemm_rate --tokens 2048 --bf16
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/flag_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/core/device.h"
#include "megatron/core/tensor.h"
#include "megatron/kernels/matmul.h"
#include "megatron/kernels/random_fill.h"

using namespace megatron;

namespace {

struct Options {
  int64_t num_layers = 12, hidden_size = 768, ffn_hidden_size = 3072, padded_vocab_size = 50304;
  int64_t tokens = 256, num_threads = std::max(1U, std::thread::hardware_concurrency()), repeats = 5;
  bool bf16 = false, no_bias = false, help = false;
};

FieldTable describe(Options& options) {
  FieldTable table;
  table.begin_group("Model", "GPT-2 124M without flags.");
  table.add("num_layers", options.num_layers, "layers").at_least(1);
  table.add("hidden_size", options.hidden_size, "width").at_least(1);
  table.add("ffn_hidden_size", options.ffn_hidden_size, "width of the feed-forward").at_least(1);
  table.add("padded_vocab_size", options.padded_vocab_size, "rows of the output layer").at_least(1);
  table.add("disable_bias_linear", options.no_bias, "linear layers without bias");
  table.add("tokens", options.tokens, "tokens of a step").at_least(1);
  table.add("bf16", options.bf16, "bfloat16 with weight gradients in fp32, instead of fp32");
  table.begin_group("Measurement", "");
  table.add("num_threads", options.num_threads, "threads").at_least(1);
  table.add("repeats", options.repeats, "calls of each product, of which the best counts").at_least(1);
  table.add("help", options.help, "show this text");
  return table;
}

/// A kind of linear layer: `count` in a step.
struct Layer {
  std::string name;
  int64_t inputs, outputs, count;
  bool has_bias;
};

std::vector<Layer> layers_of(const Options& o) {
  const int64_t h = o.hidden_size, f = o.ffn_hidden_size;
  return {{"qkv", h, 3 * h, o.num_layers, !o.no_bias},
          {"proj", h, h, o.num_layers, !o.no_bias},
          {"fc1", h, f, o.num_layers, !o.no_bias},
          {"fc2", f, h, o.num_layers, !o.no_bias},
          {"output", h, o.padded_vocab_size, 1, false}};
}

Tensor random_matrix(Device& device, const Shape& shape, DType dtype) {
  Tensor x(Storage(device.arena, "operand", shape.num_elements() * size_of(dtype), MemoryUse::kActivations), dtype,
           shape);
  kernels::fill_normal(device.cpu_stream(), {.y = x.view(),
                                             .key = RandomKey::from_seed(1).at(shape[0]).at(shape[1]),
                                             .global_strides = shape.contiguous_strides(),
                                             .std = 0.02});
  return x;
}

/// Seconds of the best of `repeats` calls, behind one that prepares the product and touches the memory.
double seconds_of(Device& device, int64_t repeats, kernels::MatmulArgs args) {
  using Clock = std::chrono::steady_clock;
  const int64_t bytes = kernels::matmul_workspace_bytes(device.cpu_stream(), args);
  const Storage workspace(device.arena, "workspace", bytes, MemoryUse::kWorkspace);
  args.workspace = {workspace.data(), DType::kUInt8, {bytes}, {1}};
  double best = std::numeric_limits<double>::infinity();
  for (int64_t call = 0; call <= repeats; ++call) {
    const auto start = Clock::now();
    kernels::matmul(device.cpu_stream(), args);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (call > 0) best = std::min(best, seconds);
  }
  return best;
}

/// Milliseconds in a step, and operations.
struct Cost {
  double forward = 0, dgrad = 0, wgrad = 0, operations = 0;
  double ms() const { return forward + dgrad + wgrad; }
  double gflops_per_s() const { return operations / ms() * 1e-6; }
  Cost& operator+=(const Cost& other) {
    forward += other.forward, dgrad += other.dgrad, wgrad += other.wgrad, operations += other.operations;
    return *this;
  }
};

Cost cost_of(Device& device, const Options& options, const Layer& layer) {
  const DType dtype = options.bf16 ? DType::kBFloat16 : DType::kFloat32;
  Tensor x = random_matrix(device, {options.tokens, layer.inputs}, dtype);
  Tensor y = random_matrix(device, {options.tokens, layer.outputs}, dtype);
  Tensor weight = random_matrix(device, {layer.outputs, layer.inputs}, dtype);
  Tensor bias = random_matrix(device, {1, layer.outputs}, dtype).reshape({layer.outputs});
  Tensor gradient = random_matrix(device, {layer.outputs, layer.inputs}, DType::kFloat32);
  const auto ms = [&](const kernels::MatmulArgs& args) {
    return 1e3 * static_cast<double>(layer.count) * seconds_of(device, options.repeats, args);
  };
  Cost cost;
  cost.operations = 6.0 * static_cast<double>(options.tokens * layer.inputs * layer.outputs * layer.count);
  cost.forward = ms({.a = std::as_const(x).view(),
                     .b = std::as_const(weight).view(),
                     .c = y.view(),
                     .transpose_b = true,
                     .bias = layer.has_bias ? std::as_const(bias).view() : ConstView{}});
  cost.wgrad =
      ms({.a = std::as_const(y).view(), .b = std::as_const(x).view(), .c = gradient.view(), .transpose_a = true});
  cost.dgrad = ms({.a = std::as_const(y).view(), .b = std::as_const(weight).view(), .c = x.view()});
  return cost;
}

void print(const std::string& name, const Cost& cost) {
  fmt::print("{:<10}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.1f}\n", name, cost.forward, cost.dgrad, cost.wgrad,
             cost.ms(), cost.gflops_per_s());
  std::fflush(stdout);
}

void run(const Options& options) {
  Device device(DeviceKind::kCpu, {.num_threads = static_cast<int>(options.num_threads)});
  fmt::print("{} tokens, {}, {} threads; milliseconds of a step\n", options.tokens, options.bf16 ? "bf16" : "fp32",
             options.num_threads);
  fmt::print("{:<10}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "layer", "forward", "dgrad", "wgrad", "all", "GFLOP/s");
  Cost total;
  for (const Layer& layer : layers_of(options)) {
    const Cost cost = cost_of(device, options, layer);
    print(layer.name, cost);
    total += cost;
  }
  print("step", total);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    FieldTable table = describe(options);
    Mistakes mistakes;
    const std::vector<std::string> words(argv + 1, argv + argc);
    parse_flags(table, words, {}, mistakes);
    mistakes.throw_if_any("[gemm_rate]");
    if (options.help)
      std::cout << help_of(table);
    else
      run(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "gemm_rate: " << error.what() << '\n';
    return 1;
  }
}
