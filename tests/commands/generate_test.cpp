// megatron generate with tiny models of Hugging Face's (tests/golden/hf), whose tokens are the numbers of the texts.
#include "commands/generate.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "tests/commands/bridge_run.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 97;
constexpr int kNumNew = 12;

Ended generate(const Words& words) {
  std::ostringstream out, err;
  const int status =
      generate_command(joined(words, {"--num-threads", "1", "--device", "cpu", "--ignore-eod"}), out, err);
  return {status, out.str(), err.str()};
}

std::vector<json> objects_of(const Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::vector<json> objects;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line));
  return objects;
}

std::string written(const ScratchDirectory& scratch, const std::string& name, const std::string& content) {
  std::ofstream(scratch.file(name)) << content;
  return scratch.file(name);
}

std::string prompts_of_many_lengths(const ScratchDirectory& scratch) {
  std::string lines;
  for (const char* text : {"3 17 8 28", "5", "1 2 3 4 5 6 7 8 9 10 11", "9 9", "96 0 11 40 41"})
    lines += json{{"prompt", text}}.dump() + "\n";
  return written(scratch, "prompts.jsonl", lines);
}

/// Logits of every position, from one forward pass without a cache.
std::vector<float> full_logits(const std::string& model, const std::vector<int32_t>& ids,
                               const ScratchDirectory& scratch) {
  PosixFileSystem files;
  const auto bytes = std::as_bytes(std::span(ids));
  std::vector<SafetensorsItem> items;
  items.push_back(
      {"input_ids", ElementType::kInt32, {1, std::ssize(ids)}, make_owned_source({bytes.begin(), bytes.end()})});
  const auto file = files.open_for_writing(scratch.file("ids.safetensors"), WriteMode::kTruncate);
  write_safetensors(*file, std::move(items), {});
  file->close();
  const std::string logits = scratch.file("logits.safetensors");
  const Ended ended =
      eval({"--load-hf", golden_model(model), "--token-ids", scratch.file("ids.safetensors"), "--logits", logits});
  EXPECT_EQ(ended.status, 0) << ended.err;
  return floats_of(open_safetensors(logits), "logits");
}

/// Every new id is the most likely one of the full logits before it, with their log-softmax; so are those of the
/// prompt.
void expect_greedy(const std::string& model, const json& object, const ScratchDirectory& scratch) {
  std::vector<int32_t> ids = object["prompt_ids"].get<std::vector<int32_t>>();
  const size_t num_prompt = ids.size();
  for (const json& id : object["ids"]) ids.push_back(id.get<int32_t>());
  ASSERT_EQ(ids.size(), num_prompt + kNumNew);
  const std::vector<float> logits = full_logits(model, ids, scratch);
  for (size_t i = 1; i < ids.size(); ++i) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>((i - 1) * kVocabulary);
    if (i >= num_prompt) {
      EXPECT_EQ(std::max_element(row, row + kVocabulary) - row, ids[i]) << "position " << i;
    }
    double sum = 0, largest = 0;
    for (int64_t id = 0; id < kVocabulary; ++id) {
      sum += std::exp(double{row[id]});
      largest = std::max(largest, std::abs(double{row[id]}));
    }
    const json& scored = i < num_prompt ? object["prompt_logprobs"][i] : object["logprobs"][i - num_prompt];
    EXPECT_NEAR(scored.get<double>(), double{row[ids[i]]} - std::log(sum), tolerance(DType::kFloat32, 1000, largest));
  }
}

class GenerateFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(GenerateFamily, WritesTheTokensOfFullForwardPassesWhateverTheBatch) {
  const ScratchDirectory scratch;
  const Words words = {"--load-hf",
                       golden_model(GetParam()),
                       "--prompts-file",
                       prompts_of_many_lengths(scratch),
                       "--greedy",
                       "--num-tokens",
                       std::to_string(kNumNew),
                       "--logprobs",
                       "--prompt-logprobs",
                       "--batch-size"};
  const Ended alone = generate(joined(words, {"1"}));
  const std::vector<json> objects = objects_of(alone);
  ASSERT_EQ(objects.size(), 5U);
  for (const json& object : objects) expect_greedy(GetParam(), object, scratch);
  for (const char* batch_size : {"2", "5"})
    EXPECT_EQ(generate(joined(words, {batch_size})).out, alone.out) << batch_size;
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateFamily,
                         ::testing::Values("gpt2", "llama", "mistral", "qwen2_sliding_tied", "gemma2", "gemma3",
                                           "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v2", "deepseek_v3"),
                         [](const auto& one) { return one.param; });

/// Sums over ranks round otherwise than those of one rank, which the log-probabilities show.
void expect_same(const std::vector<json>& made, const std::vector<json>& expected) {
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) {
    for (const char* key : {"ids", "text", "finish_reason"}) EXPECT_EQ(made[i][key], expected[i][key]);
    ASSERT_EQ(made[i]["logprobs"].size(), expected[i]["logprobs"].size());
    for (size_t j = 0; j < made[i]["logprobs"].size(); ++j)
      EXPECT_NEAR(made[i]["logprobs"][j].get<double>(), expected[i]["logprobs"][j].get<double>(),
                  tolerance(DType::kFloat32, 1000, 5));
  }
}

struct SharedModel {
  const char* model;
  Words layout;
};

TEST(Generate, RanksThatShareTheModelWriteTheTokensOfOneRank) {
  const Words tensor = {"--tensor-model-parallel-size", "2"}, stages = {"--pipeline-model-parallel-size", "2"};
  const Words experts = {"--expert-model-parallel-size", "2"}, whole_experts = {"--expert-tensor-parallel-size", "1"};
  const ScratchDirectory scratch;
  const std::string prompts = prompts_of_many_lengths(scratch);
  for (const auto& [model, layout] :
       {SharedModel{"gpt2", tensor}, SharedModel{"gemma2", tensor}, SharedModel{"mistral", tensor},
        SharedModel{"gpt2", stages}, SharedModel{"llama", joined(tensor, stages)}, SharedModel{"mixtral", tensor},
        SharedModel{"mixtral", experts}, SharedModel{"mixtral", joined(tensor, joined(experts, whole_experts))},
        SharedModel{"gpt_oss", joined(tensor, whole_experts)}, SharedModel{"deepseek_v2", joined(stages, experts)},
        SharedModel{"deepseek_v3", joined(tensor, stages)}}) {
    SCOPED_TRACE(fmt::format("{} {}", model, fmt::join(layout, " ")));
    const Words words = {"--load-hf", golden_model(model), "--prompts-file", prompts, "--greedy",     "--num-tokens",
                         "8",         "--logprobs",        "--stop",         " 50",   "--batch-size", "3"};
    expect_same(objects_of(generate(joined(words, layout))), objects_of(generate(words)));
  }
}

TEST(Generate, RejectsRanksThatCannotShareTheModel) {
  const auto error_of = [](const std::string& model, const Words& layout) {
    const Ended ended = generate(joined({"--load-hf", golden_model(model), "--prompt", "1"}, layout));
    EXPECT_NE(ended.status, 0);
    EXPECT_EQ(ended.out, "");
    return ended.err;
  };
  EXPECT_THAT(error_of("llama", {"--tensor-model-parallel-size", "3"}),
              HasSubstr("4 heads are not divisible by 3 tensor-parallel ranks"));
  EXPECT_THAT(error_of("llama", {"--expert-model-parallel-size", "2"}), HasSubstr("the model has no experts"));
  EXPECT_THAT(error_of("mixtral", {"--expert-model-parallel-size", "3"}), HasSubstr("experts are not divisible by 3"));
  EXPECT_THAT(error_of("llama", {"--context-parallel-size", "2"}), HasSubstr("--context-parallel-size 2: "));
  EXPECT_THAT(error_of("llama", {"--num-virtual-stages-per-pipeline-rank", "2"}),
              HasSubstr("2 virtual stages need --pipeline-model-parallel-size 2 or more"));
  EXPECT_THAT(error_of("llama", {"--pipeline-model-parallel-size", "7"}),
              HasSubstr("--pipeline-model-parallel-layout"));
  EXPECT_THAT(error_of("llama", {"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Et|tt"}),
              HasSubstr("L"));
}

TEST(Generate, EvaluatesOnRanksThatShareTheModel) {
  const ScratchDirectory scratch;
  const std::string text = written(scratch, "text.txt", "3 17 8 28 5 1 2 3 4 5 6 7 8 9 10 11");
  const auto loss_of = [&](const std::string& model, const Words& layout) {
    const Ended ended = eval(joined({"--load-hf", golden_model(model), "--text", text, "--num-threads", "1"}, layout));
    EXPECT_EQ(ended.status, 0) << ended.err;
    const size_t begin = ended.out.find("loss ");
    return begin == std::string::npos ? 0.0 : std::stod(ended.out.substr(begin + 5));
  };
  for (const char* model : {"llama", "mixtral"}) {
    const double one = loss_of(model, {});
    EXPECT_GT(one, 1);
    EXPECT_NEAR(loss_of(model, {"--pipeline-model-parallel-size", "2", "--tensor-model-parallel-size", "2"}), one,
                tolerance(DType::kFloat32, 1000, 5));
  }
}

TEST(Generate, EndsBeforeAStopWordAndSaysSo) {
  const ScratchDirectory scratch;
  const Words words = {"--load-hf", golden_model("llama"), "--prompt", "1 2 3", "--greedy", "--num-tokens", "12"};
  const json whole = objects_of(generate(joined(words, {"--json"}))).at(0);
  EXPECT_EQ(whole["finish_reason"], "length");
  const std::string text = whole["text"];
  const size_t middle = text.find(' ', text.size() / 2);
  const std::string stop = text.substr(middle, text.find(' ', middle + 1) - middle);
  const std::string before = text.substr(0, text.find(stop));
  const json ended = objects_of(generate(joined(words, {"--json", "--stop", "no such text", stop}))).at(0);
  EXPECT_EQ(ended["text"], before);
  EXPECT_EQ(ended["finish_reason"], "stop");
  EXPECT_LT(ended["ids"].size(), whole["ids"].size());
  EXPECT_EQ(generate(joined(words, {"--stop", stop})).out, "1 2 3" + before + "\n");
  EXPECT_EQ(generate(words).out, "1 2 3" + text + "\n");
}

TEST(Generate, TakesLinesOfTextAndSkipsEmptyOnes) {
  const ScratchDirectory scratch;
  const Words words = {"--load-hf", golden_model("llama"), "--greedy", "--num-tokens", "3", "--prompts-file"};
  const std::vector<json> objects = objects_of(generate(joined(words, {written(scratch, "a.txt", "1 2\n\n7\n")})));
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0]["prompt"], "1 2");
  EXPECT_EQ(objects[1]["prompt"], "7");
  EXPECT_EQ(objects[1]["ids"].size(), 3U);
}

TEST(Generate, GivesTheMostLikelyTokensOfAPosition) {
  const json object = objects_of(generate({"--load-hf", golden_model("llama"), "--greedy", "--num-tokens", "3",
                                           "--prompt", "4 5", "--json", "--logprobs", "--top-logprobs", "2"}))
                          .at(0);
  ASSERT_EQ(object["top_logprobs"].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(object["top_logprobs"][i][0]["id"], object["ids"][i]);
    EXPECT_EQ(object["top_logprobs"][i][0]["logprob"], object["logprobs"][i]);
    EXPECT_LE(object["top_logprobs"][i][1]["logprob"], object["logprobs"][i]);
  }
}

TEST(Generate, NamesTheLineOfABadPrompt) {
  const ScratchDirectory scratch;
  const auto error_of = [&](const std::string& name, const std::string& content) {
    const Ended ended =
        generate({"--load-hf", golden_model("llama"), "--prompts-file", written(scratch, name, content)});
    EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kData));
    EXPECT_EQ(ended.out, "");
    return ended.err;
  };
  EXPECT_THAT(error_of("a.jsonl", "{\"prompt\": \"1\"}\n{\"text\": \"1\"}\n"),
              HasSubstr("a.jsonl:2: the object has no text"));
  EXPECT_THAT(error_of("b.jsonl", "1\n"), HasSubstr("b.jsonl:1: the line is not a JSON object {\"prompt\""));
  EXPECT_THAT(error_of("c.txt", "1\n2 97\n"), HasSubstr("c.txt:2: NullTokenizer: id 97 is outside"));
  EXPECT_THAT(error_of("d.txt", "\n"), HasSubstr("has no prompt"));
  const Ended missing = generate({"--load-hf", golden_model("llama"), "--prompts-file", scratch.file("e.txt")});
  EXPECT_THAT(missing.err, HasSubstr("there is no such file"));
}

TEST(Generate, RejectsSeveralPromptsWhereTheRopeDependsOnTheLength) {
  const ScratchDirectory scratch;
  const Ended ended =
      generate({"--load-hf", golden_model("phi3_longrope"), "--prompts-file", prompts_of_many_lengths(scratch)});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("Give one with --prompt"));
}

}  // namespace
}  // namespace megatron::testing
