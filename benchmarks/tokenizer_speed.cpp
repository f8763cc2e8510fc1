// How fast a tokenizer encodes documents that are in memory:
//   tokenizer_speed TYPE MODEL DOCUMENTS ROUNDS THREADS     (tokenizer_table.py makes the file and the table)
// DOCUMENTS: UTF-8 texts with a NUL byte behind each. Each round starts with new encoders: the first pass over the
// documents is "cold", the fastest of three passes that follow is "warm". Prints JSON: seconds of the fastest round, by
// the clock and as the time that the threads had a core, summed over the threads; and the number of ids.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "megatron/tokenizers/tokenizer_factory.h"

namespace {
using megatron::TextEncoder;
using megatron::TokenId;
using megatron::Tokenizer;
using Documents = std::vector<std::string_view>;

struct Pass {
  double wall = std::numeric_limits<double>::infinity(), cpu = std::numeric_limits<double>::infinity();
  size_t num_ids = 0;
};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Pass encode(TextEncoder& encoder, const Documents& documents, size_t first, size_t step) {
  Pass pass;
  std::vector<TokenId> ids;
  const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
  for (size_t i = first; i < documents.size(); i += step) {
    ids.clear();
    encoder.append(documents[i], ids);
    pass.num_ids += ids.size();
  }
  pass.wall = now(CLOCK_MONOTONIC) - wall;
  pass.cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return pass;
}

Pass encode_on_threads(std::vector<std::unique_ptr<TextEncoder>>& encoders, const Documents& documents) {
  std::vector<Pass> passes(encoders.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < encoders.size(); ++i)
      threads.emplace_back([&, i] { passes[i] = encode(*encoders[i], documents, i, encoders.size()); });
  }
  Pass total{0, 0, 0};
  for (const Pass& pass : passes)
    total = {std::max(total.wall, pass.wall), total.cpu + pass.cpu, total.num_ids + pass.num_ids};
  return total;
}

Pass faster(const Pass& a, const Pass& b) { return {std::min(a.wall, b.wall), std::min(a.cpu, b.cpu), b.num_ids}; }
}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return fmt::print(stderr, "usage: tokenizer_speed TYPE MODEL DOCUMENTS ROUNDS THREADS\n"), 2;
  std::ostringstream content;
  content << std::ifstream(argv[3], std::ios::binary).rdbuf();
  const std::string bytes = std::move(content).str();
  Documents documents;
  for (size_t begin = 0, end; begin < bytes.size(); begin = end + 1) {
    end = std::min(bytes.find('\0', begin), bytes.size());
    documents.push_back(std::string_view(bytes).substr(begin, end - begin));
  }
  const auto tokenizer = megatron::make_tokenizer({.type = argv[1], .model = argv[2]});
  Pass cold, warm;
  for (int round = 0; round < std::stoi(argv[4]); ++round) {
    std::vector<std::unique_ptr<TextEncoder>> encoders;
    for (int i = 0; i < std::stoi(argv[5]); ++i) encoders.push_back(tokenizer->make_encoder());
    cold = faster(cold, encode_on_threads(encoders, documents));
    for (int pass = 0; pass < 3; ++pass) warm = faster(warm, encode_on_threads(encoders, documents));
  }
  fmt::print(
      "{{\"bytes\": {}, \"ids\": {}, \"cold_wall\": {}, \"cold_cpu\": {}, \"warm_wall\": {}, \"warm_cpu\": {}}}\n",
      bytes.size() - documents.size(), warm.num_ids, cold.wall, cold.cpu, warm.wall, warm.cpu);
}
