#include "commands/bench/bench.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "commands/bench/bench_config.h"
#include "commands/matmul_choices_folders.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr std::string_view kTiny =
    " --num-layers 2 --hidden-size 24 --num-attention-heads 3 --seq-length 13 --micro-batch-size 3 --vocab-size 60 "
    "--make-vocab-size-divisible-by 7 --warm-cache --repeats 3 --seconds 0.001 --num-threads 1 --device cpu";

struct Outcome {
  int status;
  std::string out, err;
  std::vector<Json> rows;
};

/// @param words  arguments after "bench", separated by spaces
Outcome bench(const std::string& words) {
  const testing::ScratchDirectory directory;
  const std::string json = directory.path() + "/results.jsonl";
  std::istringstream text(words);
  std::vector<std::string> args{std::istream_iterator<std::string>(text), {}};
  args.insert(args.end(), {"--json", json});
  std::ostringstream out, err;
  Outcome outcome{.status = bench_command(args, out, err), .out = {}, .err = {}, .rows = {}};
  outcome.out = out.str(), outcome.err = err.str();
  std::ifstream file(json);
  for (std::string line; std::getline(file, line);) outcome.rows.push_back(Json::parse(line));
  return outcome;
}

const Json& row_of(const Outcome& outcome, std::string_view what) {
  return *std::ranges::find_if(outcome.rows, [&](const Json& row) { return row.at("case") == what; });
}

/// Checks the fields of every row.
void expect_rows(const Outcome& outcome, const std::string& kind) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_FALSE(outcome.rows.empty());
  for (const Json& row : outcome.rows) {
    EXPECT_EQ(row.at("bench"), kind);
    for (const char* text : {"case", "name", "device", "dtype", "commit", "date"})
      EXPECT_FALSE(row.at(text).get<std::string>().empty()) << text;
    EXPECT_GE(row.at("threads"), 1);
    EXPECT_GE(row.at("ranks"), 1);
    EXPECT_GT(row.at("seconds"), 0);
    for (const char* known_or_null : {"watts", "clock_mhz", "joules"}) EXPECT_TRUE(row.contains(known_or_null));
  }
}

TEST(BenchCommand, GemmMeasuresTheLayersOfAModel) {
  const Outcome o = bench("gemm" + std::string(kTiny) + " --bf16 --name tiny --commit abc");
  expect_rows(o, "gemm");
  EXPECT_EQ(o.rows.size(), 16u);  // five layers in three passes, and the total
  EXPECT_EQ(row_of(o, "fc1 forward").at("operations"), 2.0 * 3 * 13 * 24 * 96);
  EXPECT_EQ(row_of(o, "fc1 forward").at("calls"), 2);
  EXPECT_EQ(row_of(o, "total").at("operations"), 6.0 * 3 * 13 * (2 * 12 * 24 * 24 + 24 * 63));
  EXPECT_EQ(o.rows[0].at("name"), "tiny");
  EXPECT_EQ(o.rows[0].at("commit"), "abc");
  EXPECT_EQ(o.rows[0].at("dtype"), "bfloat16");
  EXPECT_THAT(o.out, AllOf(HasSubstr("output wgrad"), HasSubstr("total: "), HasSubstr("FLOP/s"), HasSubstr("power")));
}

TEST(BenchCommand, GemmAndOpsMeasureExperts) {
  const std::string experts =
      std::string(kTiny) +
      " --num-experts 4 --moe-router-topk 2 --disable-bias-linear --swiglu --moe-ffn-hidden-size 16";
  const Outcome gemm = bench("gemm" + experts);
  expect_rows(gemm, "gemm");
  EXPECT_EQ(gemm.rows.size(), 3u * (3 + 3 + 2) + 1);  // qkv, proj, output; router, two layers of experts, and as loops
  const Json &grouped = row_of(gemm, "experts fc1 wgrad"), &loop = row_of(gemm, "experts fc1 wgrad, loop");
  EXPECT_EQ(grouped.at("operations"), 2.0 * 2 * 3 * 13 * 24 * 2 * 16);
  EXPECT_EQ(grouped.at("operations"), loop.at("operations"));
  EXPECT_EQ(loop.at("calls"), 0);
  EXPECT_GT(grouped.at("share_of_best_product"), 0);
  EXPECT_LE(grouped.at("share_of_best_product"), 1);
  EXPECT_THAT(gemm.out, AllOf(HasSubstr("experts fc2 dgrad, loop"), HasSubstr("of best")));
  const Outcome ops = bench("ops" + experts);
  expect_rows(ops, "ops");
  for (const char* name : {"permute forward", "unpermute backward", "weighted activation backward"})
    EXPECT_GT(row_of(ops, name).at("share_of_copy_bandwidth"), 0) << name;
}

TEST(BenchCommand, GemmMeasuresAnyShapes) {
  const Outcome o = bench("gemm --shapes 5,7,3 1,1,1 --repeats 3 --warm-cache --num-threads 1 --device cpu");
  expect_rows(o, "gemm");
  EXPECT_EQ(o.rows.size(), 7u);
  EXPECT_EQ(row_of(o, "5,7,3 wgrad").at("operations"), 2 * 5 * 7 * 3);
  EXPECT_EQ(row_of(o, "total").at("operations"), 3 * 2 * (5 * 7 * 3 + 1));
}

TEST(BenchCommand, TuningNeedsAGpu) {
  const Outcome o = bench("gemm --tune" + std::string(kTiny) + " --bf16");
  EXPECT_EQ(o.status, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("--tune chooses among cuBLASLt's algorithms, on a GPU; device: cpu"));
  EXPECT_THAT(bench("ops --tune" + std::string(kTiny)).err, HasSubstr("--tune belongs to 'bench gemm'"));
  EXPECT_THAT(bench("gemm --tune --float32-matmul-precision high" + std::string(kTiny)).err,
              HasSubstr("--tune measures matmuls in fp32, and with --float32-matmul-precision high"));
  const Outcome step = bench("step" + std::string(kTiny) + " --warm-up 1 --steps 1 --matmul-choices h200.json");
  EXPECT_EQ(step.status, 2);
  EXPECT_THAT(step.err, HasSubstr("--matmul-choices h200.json: this run computes on the CPU"));
}

TEST(MatmulChoicesFolders, AreBesideTheProgramInABundleAndInABuildDirectory) {
  EXPECT_THAT(matmul_choices_folders("/opt/megatron/build-cuda/bin/megatron"),
              ::testing::ElementsAre("/opt/megatron/build-cuda/benchmarks/tuned", "/opt/megatron/benchmarks/tuned"));
}

TEST(BenchCommand, AttentionCountsUnmaskedPairs) {
  const Outcome o = bench("attention" + std::string(kTiny));
  expect_rows(o, "attention");
  EXPECT_EQ(row_of(o, "attention forward").at("operations"), 4 * 3 * (13 * 14 / 2) * 24);
  EXPECT_EQ(row_of(o, "attention backward").at("operations"), 10 * 3 * (13 * 14 / 2) * 24);
}

TEST(BenchCommand, OpsAreComparedWithACopy) {
  const Outcome o =
      bench("ops" + std::string(kTiny) + " --swiglu --normalization RMSNorm --position-embedding-type rope");
  expect_rows(o, "ops");
  EXPECT_THAT(o.out, AllOf(HasSubstr("a copy moves"), HasSubstr("rope backward"), HasSubstr("Adam")));
  const Json& total = row_of(o, "total");
  EXPECT_DOUBLE_EQ(total.at("share_of_copy_bandwidth").get<double>(),
                   total.at("bytes").get<double>() / total.at("seconds").get<double>() /
                       total.at("copy_bytes_per_second").get<double>());
}

TEST(BenchCommand, TransformerEngineNeedsAGpu) {
  const Outcome o = bench("ops --transformer-engine te.so" + std::string(kTiny));
  EXPECT_EQ(o.status, 2) << o.err;
  EXPECT_THAT(o.err,
              HasSubstr("--transformer-engine te.so: its ops run on a GPU, and this measurement runs on the CPU"));
  EXPECT_THAT(bench("gemm --transformer-engine te.so" + std::string(kTiny)).err,
              HasSubstr("--transformer-engine belongs to 'bench ops'"));
}

TEST(BenchCommand, MeasuresThePartsOfSequencesThatRanksShare) {
  const std::string ranks = std::string(kTiny) + " --seq-length 16 --nproc-per-node 2 --context-parallel-size 2";
  const Outcome attention = bench("attention" + ranks);
  expect_rows(attention, "attention");
  const Json& forward = row_of(attention, "attention forward");
  EXPECT_EQ(forward.at("operations"), 4 * 3 * (16 * 17 / 2) * 24) << "of whole sequences";
  EXPECT_EQ(forward.at("calls"), 2 * 0.5) << "each rank has half of the pairs in each of two layers";
  EXPECT_EQ(row_of(bench("gemm" + ranks), "fc1 forward").at("operations"), 2.0 * 3 * 8 * 24 * 96);
  const Outcome step = bench("step" + ranks + " --warm-up 1 --steps 1");
  expect_rows(step, "step");
  EXPECT_EQ(row_of(step, "step").at("cp"), 2);
  EXPECT_GT(row_of(step, "step").at("percent_of_kernel_ceiling"), 0);
  const Outcome hybrid = bench("step" + ranks + " --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 8 " +
                               "--dataloader-inter-document-masking");
  EXPECT_EQ(hybrid.status, 2);
  EXPECT_THAT(hybrid.err, HasSubstr("--hybrid-context-parallel: bench measures sequences of one length"));
}

TEST(BenchCommand, MeasuresTheShapesOfOneRank) {
  const Outcome o = bench("gemm" + std::string(kTiny) + " --tensor-model-parallel-size 3 --nproc-per-node 3");
  expect_rows(o, "gemm");
  EXPECT_EQ(row_of(o, "fc1 forward").at("operations"), 2.0 * 3 * 13 * 24 * 96 / 3);
  EXPECT_EQ(o.rows[0].at("ranks"), 3);
  EXPECT_THAT(o.out, HasSubstr("3 ranks: TP 3"));
}

TEST(BenchCommand, CommMeasuresRanksOfOneProcess) {
  const Outcome o = bench("comm --nproc-per-node 3 --sizes 1 1000 --repeats 4 --bf16 --device cpu");
  expect_rows(o, "comm");
  EXPECT_EQ(o.rows.size(), 8u);
  const Json& row = row_of(o, "reduce-scatter");
  EXPECT_EQ(row.at("bytes"), 6);  // an element for each rank
  EXPECT_EQ(o.rows[1].at("bytes"), 1002);
  EXPECT_EQ(row.at("timed_calls"), 4);
  EXPECT_DOUBLE_EQ(row.at("bus_bytes_per_second").get<double>(),
                   row.at("algorithm_bytes_per_second").get<double>() * 2 / 3);
  EXPECT_THAT(o.out, AllOf(HasSubstr("3 ranks, threads of one process"), HasSubstr("exchange")));
  EXPECT_THAT(bench("comm").err, HasSubstr("one rank has no other to communicate with"));
}

constexpr std::string_view kFewSteps = " --warm-up 1 --steps 3 --lr 0.01";

TEST(BenchCommand, StepTrainsAndComparesWithItsKernels) {
  for (const std::string extra : {" --bf16 --global-batch-size 6", " --swiglu --position-embedding-type rope"}) {
    const Outcome o = bench("step" + std::string(kTiny) + std::string(kFewSteps) + extra);
    expect_rows(o, "step");
    ASSERT_EQ(o.rows.size(), 1u);
    const Json& row = o.rows[0];
    EXPECT_EQ(row.at("steps"), 3);
    EXPECT_EQ(row.at("warm_up"), 1);
    EXPECT_DOUBLE_EQ(row.at("tokens_per_second_per_rank").get<double>(),
                     row.at("tokens_per_step").get<double>() / row.at("seconds").get<double>());
    EXPECT_NEAR(row.at("loss").get<double>(), std::log(61), 1);  // of random tokens
    const double percent = row.at("percent_of_kernel_ceiling").get<double>();
    EXPECT_GT(percent, 0);
    EXPECT_DOUBLE_EQ(percent, 100 * row.at("ceiling_seconds").get<double>() / row.at("seconds").get<double>());
    EXPECT_NEAR(row.at("flops_megatron").get<double>() / row.at("ceiling_flops_megatron").get<double>(), percent / 100,
                1e-12);
    EXPECT_DOUBLE_EQ(row.at("mfu").get<double>(),
                     row.at("flops_megatron").get<double>() / row.at("peak_flops").get<double>());
    EXPECT_GT(row.at("memory_bytes"), 4 * row.at("parameters").get<int64_t>());
    EXPECT_THAT(o.out, AllOf(HasSubstr("% of the kernel ceiling, which is "), HasSubstr("(--kernel-ceiling "),
                             HasSubstr("MFU"), HasSubstr("power"), HasSubstr("loss"), HasSubstr("tokens/s of a rank")));
  }
}

TEST(BenchCommand, StepRunsAnyLayout) {
  const Outcome o = bench("step" + std::string(kTiny) + std::string(kFewSteps) +
                          " --nproc-per-node 4 --tensor-model-parallel-size 3 --no-ceiling");
  EXPECT_EQ(o.status, 2);  // 4 ranks are not a multiple of 3
  const Outcome layout =
      bench("step" + std::string(kTiny) + std::string(kFewSteps) +
            " --nproc-per-node 4 --pipeline-model-parallel-size 2 --global-batch-size 12 --mock-data");
  expect_rows(layout, "step");
  EXPECT_EQ(layout.rows[0].at("ranks"), 4);
  EXPECT_EQ(layout.rows[0].at("tokens_per_step"), 12 * 13);
  EXPECT_DOUBLE_EQ(layout.rows[0].at("tokens_per_second_per_rank").get<double>(),
                   12 * 13 / layout.rows[0].at("seconds").get<double>() / 4);
}

TEST(BenchCommand, StepOfLayersWhoseKernelsAreNotMeasuredNeedsNoCeiling) {
  for (const std::string_view kind :
       {" --num-experts 4 --moe-router-topk 2 --moe-shared-expert-intermediate-size 8 --disable-bias-linear",
        " --attention-output-gate"}) {
    const std::string line = "step" + std::string(kTiny) + std::string(kFewSteps) + std::string(kind);
    const Outcome refused = bench(line);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr("not measured yet"));
    EXPECT_THAT(refused.err, HasSubstr("Or give --no-ceiling, to measure the step alone."));
    EXPECT_EQ(refused.rows.size(), 0);
    const Outcome alone = bench(line + " --no-ceiling");
    expect_rows(alone, "step");
    for (const Json& row : alone.rows) EXPECT_GT(row.at("parameters"), 0);
  }
}

TEST(BenchCommand, RowsHavePrecisionAndLayout) {
  const auto row = [](const std::string& extra) {
    const Outcome o = bench("step" + std::string(kTiny) + " --warm-up 1 --steps 1 --no-ceiling" + extra);
    EXPECT_EQ(o.status, 0) << o.err;
    return o.rows.at(0);
  };
  const auto bytes = [](const Json& of) {
    std::vector<int64_t> all;
    for (const char* part : {"weight", "gradient", "main_param", "moment"})
      all.push_back(of.at(std::string(part) + "_bytes").get<int64_t>());
    EXPECT_EQ(of.at("bytes_per_parameter"), std::accumulate(all.begin(), all.end(), int64_t{0}));
    return all;
  };
  using Bytes = std::vector<int64_t>;
  EXPECT_EQ(bytes(row("")), (Bytes{4, 4, 0, 8}));
  EXPECT_EQ(bytes(row(" --fp64")), (Bytes{8, 8, 0, 16}));
  EXPECT_EQ(bytes(row(" --fp16 --optimizer sgd")), (Bytes{2, 4, 4, 4}));
  const std::string low =
      " --bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 "
      "--exp-avg-sq-dtype bf16 --main-grads-dtype bf16";
  EXPECT_EQ(bytes(row(low)), (Bytes{2, 2, 2, 4}));
  EXPECT_EQ(bytes(row(low + " --main-params-dtype bf16")), (Bytes{2, 2, 0, 4}));
  const Json laid_out =
      row(" --bf16 --nproc-per-node 4 --pipeline-model-parallel-size 2 --global-batch-size 12 --deterministic-mode "
          "--recompute-granularity selective --recompute-modules mlp core_attn --mock-data");
  EXPECT_EQ(bytes(laid_out), (Bytes{2, 4, 4, 8}));
  const Json expected = {{"tf32", false},
                         {"deterministic", true},
                         {"recompute", "selective: core_attn, mlp"},
                         {"seq_length", 13},
                         {"micro_batch_size", 3},
                         {"global_batch_size", 12},
                         {"tp", 1},
                         {"pp", 2},
                         {"dp", 2},
                         {"cp", 1},
                         {"gpus", 0},
                         {"sequence_parallel", false},
                         {"distributed_optimizer", false}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(laid_out.at(name), value) << name;
  EXPECT_EQ(row("").at("recompute"), "none");
}

TEST(BenchCommand, StepTrainsOnTheSameTokensInEveryLayout) {
  const auto loss = [](const std::string& extra) {
    const Outcome o = bench("step" + std::string(kTiny) + std::string(kFewSteps) +
                            " --fp64 --no-ceiling --global-batch-size 6 --hidden-dropout 0" + extra);
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_FALSE(o.rows[0].contains("percent_of_kernel_ceiling"));
    return o.rows[0].at("loss").get<double>();
  };
  const double one = loss("");
  EXPECT_NEAR(loss(" --nproc-per-node 2"), one, 1e-10);
  EXPECT_NEAR(loss(" --nproc-per-node 3 --tensor-model-parallel-size 3"), one, 1e-10);
  EXPECT_NE(loss(" --seed 5"), one);
}

TEST(BenchCommand, TheFirstStepIsTimedFromTheLaunch) {
  const auto seconds = [](const std::string& extra) {
    const Outcome o = bench("step" + std::string(kTiny) + " --warm-up 1 --steps 1 --no-ceiling" + extra);
    EXPECT_EQ(o.status, 0) << o.err;
    return o.rows.at(0).at("seconds_to_first_step").get<double>();
  };
  const double whole = seconds("");
  EXPECT_GT(whole, 0);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_GT(seconds(fmt::format(" --launch-time {}", now - 1000)), 1000);
}

TEST(BenchCommand, HelpShowsExamples) {
  std::ostringstream out, err;
  EXPECT_EQ(bench_command({"--help"}, out, err), 0);
  for (const char* part : {"gemm", "attention", "ops", "comm", "step", "--json", "--shapes", "--warm-up", "percent of"})
    EXPECT_THAT(out.str(), HasSubstr(part));
  EXPECT_EQ(bench("step --help").status, 0);
}

TEST(BenchCommand, ReportsAllBadInputAtOnce) {
  EXPECT_THAT(bench("sleep").err, HasSubstr("'sleep' cannot be measured; gemm, attention, ops, comm and step can"));
  EXPECT_EQ(bench("sleep").status, 2);
  const Outcome o = bench(
      "gemm --shapes 1,2 3,x,5 7,8,9 --sizes 5 --steps 3 --save somewhere --repeats 0 --num-heads 3 --train-iters 5");
  EXPECT_EQ(o.status, 2);
  for (const char* part : {"--shapes 1,2: a matmul is three positive whole numbers", "--shapes 3,x,5",
                           "--sizes belongs to 'bench comm'", "--steps belongs to 'bench step'",
                           "--save: bench only trains a few steps", "--repeats", "--num-heads", "--train-iters"})
    EXPECT_THAT(o.err, HasSubstr(part));
  EXPECT_THAT(o.err, Not(HasSubstr("7,8,9")));
  EXPECT_THAT(o.rows, IsEmpty());
  EXPECT_THAT(bench("gemm --hidden-size 30 --num-layers 2 --num-attention-heads 4 --seq-length 8").err,
              HasSubstr("num-attention-heads"));
}

TEST(BenchCommand, RejectsAFileThatCannotBeWritten) {
  std::ostringstream out, err;
  EXPECT_EQ(bench_command({"gemm", "--shapes", "1,1,1", "--device", "cpu", "--json", "/proc/none/x"}, out, err), 6);
}

TEST(BenchConfig, UsesDefaultsForMissingFlags) {
  const auto config = [](std::vector<std::string> words) { return pretrain_config_of(parse_bench(words, 1), 1); };
  const PretrainConfig gpt2 = config({"step", "--bf16"});
  EXPECT_EQ(gpt2.transformer.num_layers, 12);
  EXPECT_EQ(gpt2.transformer.padded_vocab_size, 50304);
  EXPECT_EQ(gpt2.model.seq_length, 1024);
  EXPECT_EQ(gpt2.training.train_iters, 30);
  const PretrainConfig other = config({"step", "--num-layers", "3", "--hidden-size", "8", "--num-attention-heads", "2",
                                       "--seq-length", "5", "--steps", "4", "--warm-up", "2", "--lr", "0.5"});
  EXPECT_EQ(other.transformer.num_layers, 3);
  EXPECT_EQ(other.transformer.max_sequence_length, 5);
  EXPECT_EQ(other.training.train_iters, 6);
  EXPECT_EQ(other.optimizer.lr, 0.5);
}

}  // namespace
}  // namespace megatron
