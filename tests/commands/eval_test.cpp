// `megatron eval` on checkpoints of Megatron-LM.
#include <gtest/gtest.h>

#include <regex>

#include "tests/commands/bridge_run.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

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

}  // namespace
}  // namespace megatron::testing
