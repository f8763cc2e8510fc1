// `megatron eval` on the documents of a data set, and on checkpoints of Megatron-LM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "commands/exit_code.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/commands/bridge_run.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

/// Two documents, the second of two sequences.
std::string write_documents(const ScratchDirectory& scratch) {
  IndexedDatasetBuilder builder(scratch.file("documents"), {});
  builder.add_document(std::vector<int64_t>{3, 17, 8, 28, 5, 1, 2, 3, 4, 5}, std::vector<int32_t>{10});
  builder.add_document(std::vector<int64_t>{6, 7, 8, 9, 10, 11, 12}, std::vector<int32_t>{4, 3});
  builder.finalize();
  return scratch.file("documents");
}

/// One sequence as a file for --token-ids.
std::string write_ids(const ScratchDirectory& scratch, const std::vector<int32_t>& ids) {
  const auto bytes = std::as_bytes(std::span(ids));
  std::vector<SafetensorsItem> items;
  items.push_back(
      {"input_ids", ElementType::kInt32, {1, std::ssize(ids)}, make_owned_source({bytes.begin(), bytes.end()})});
  PosixFileSystem files;
  const auto file = files.open_for_writing(scratch.file("ids.safetensors"), WriteMode::kTruncate);
  write_safetensors(*file, std::move(items), {});
  file->close();
  return scratch.file("ids.safetensors");
}

struct Printed {
  int64_t num_tokens = 0;
  double loss = 0;
};

Printed printed_by(const Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::regex form(R"(tokens (\d+)\nloss (\d+\.\d{8})\nperplexity \d+\.\d{6}\n)");
  std::smatch found;
  EXPECT_TRUE(std::regex_match(ended.out, found, form)) << ended.out;
  return found.size() < 3 ? Printed{} : Printed{std::stoll(found[1]), std::stod(found[2])};
}

TEST(Eval, TakesTheDocumentsOfADataSetOneByOne) {
  const ScratchDirectory scratch;
  const std::string prefix = write_documents(scratch);
  const Words model = {"--load-hf", golden_model("llama"), "--seq-length", "6"};
  double sum = 0;
  int64_t count = 0;
  // The last token of the second document would be a sequence without a token to predict.
  for (const auto& ids : {std::vector<int32_t>{3, 17, 8, 28, 5, 1}, {2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}) {
    const Printed one = printed_by(eval({"--load-hf", golden_model("llama"), "--token-ids", write_ids(scratch, ids)}));
    sum += one.loss * static_cast<double>(one.num_tokens);
    count += one.num_tokens;
  }
  for (const std::string& path : {prefix, prefix + ".bin"}) {
    const Printed all = printed_by(eval(joined(model, {"--data-path", path})));
    EXPECT_EQ(all.num_tokens, count);
    EXPECT_NEAR(all.loss, sum / static_cast<double>(count), 1e-8);  // of eight printed digits
  }
  EXPECT_EQ(printed_by(eval(joined(model, {"--data-path", prefix, "--num-sequences", "2"}))).num_tokens, 8);
}

/// A checkpoint that Megatron-LM wrote, with all the arguments of its run.
std::string of_megatron(const std::string& name) { return golden_path("checkpoint/lm019/" + name + "/saved"); }

TEST(Eval, TakesCheckpointsOfMegatron) {
  const ScratchDirectory scratch;
  const std::string ids = write_ids(scratch, {3, 17, 8, 28, 5, 1, 2, 3, 4, 5, 100});
  const auto loss_of = [&](const std::string& name) {
    SCOPED_TRACE(name);
    return printed_by(eval({"--load", of_megatron(name), "--token-ids", ids})).loss;
  };
  EXPECT_EQ(loss_of("legacy_1"), loss_of("llama_1"));
  EXPECT_EQ(loss_of("legacy_plain_1"), loss_of("gpt2_1"));
  for (const char* name : {"llama_tp2pp2", "moe_1", "moemix_1"}) EXPECT_GT(loss_of(name), 1) << name;
}

TEST(Eval, ListsFlagsThatDoNotGoTogether) {
  const Ended ended = eval({"--load-hf", "x", "--text", "x", "--data-path", "x", "--logits", "x"});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(ended.err, HasSubstr("give one of --token-ids, --text and --data-path"));
  EXPECT_THAT(ended.err, HasSubstr("--logits goes with --token-ids alone"));
  EXPECT_THAT(eval({"--load-hf", "x", "--text", "x", "--num-sequences", "1"}).err,
              HasSubstr("--num-sequences goes with --data-path alone"));
  EXPECT_THAT(eval({"--load-hf", golden_model("llama"), "--data-path", "/nowhere/data"}).err,
              HasSubstr("/nowhere/data"));
}

}  // namespace
}  // namespace megatron::testing
