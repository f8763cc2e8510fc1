// --help, --help WORD and --help=FLAG of pretrain_gpt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/command_help.h"
#include "megatron/training/config/fields.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::refusal;
using testing::Words;

TEST(Help, NamesEveryFlagWithAText) {
  const std::string help = help_text({});
  PretrainConfig config;
  describe(config).for_each([&](const Field& field) {
    for (const std::string& flag : field.flags) EXPECT_THAT(help, HasSubstr(flag));
    for (const std::string& flag : field.off_flags) EXPECT_THAT(help, HasSubstr(flag));
    EXPECT_FALSE(field.help.empty() && field.no_effect.empty()) << field.name;
  });
  EXPECT_TRUE(asks_for_help({"--num-layers", "2", "--help"}));
  EXPECT_TRUE(asks_for_help({"-h"}));
  EXPECT_TRUE(asks_for_help({"--help=lr"}));
  EXPECT_FALSE(asks_for_help({"--num-layers", "2"}));
}

TEST(Help, OfAWordShowsTheFlagsThatSpeakOfIt) {
  const std::string help = help_text({"--help", "Clip"});
  EXPECT_THAT(help, HasSubstr("--clip-grad X"));
  EXPECT_THAT(help, Not(HasSubstr("--num-layers")));
  EXPECT_THAT(help_text({"--help", "learning-rate"}), HasSubstr("did you mean --lr?"));
  EXPECT_THAT(help_text({"--num-layers", "2", "--help"}), HasSubstr("usage: megatron pretrain_gpt"));
}

TEST(Help, OfAFlagTellsAllAboutIt) {
  const std::string help = help_text({"--help=--ffn-hidden-size"});
  EXPECT_THAT(help, HasSubstr("--ffn-hidden-size N\n  width of the feed-forward\n  default: 4 * --hidden-size; with"));
  EXPECT_THAT(help, HasSubstr("range: at least 1, at most 2147483647"));
  EXPECT_EQ(help, help_text({"--help", "--ffn-hidden-size"}));
  EXPECT_EQ(help, help_text({"--help=ffn-hidden-size"}));
  EXPECT_THAT(help_text({"--help=nproc-per-node"}), HasSubstr("--nproc-per-node, --nproc_per_node N"));
  EXPECT_THAT(help_text({"--help=tokenizer-type"}), HasSubstr("not supported yet: MultimodalTokenizer"));
  EXPECT_THAT(help_text({"--help=expert-model-parallel-size"}), HasSubstr("share the experts\n  default: 1\n"));
  EXPECT_THAT(help_text({"--help=lr"}), HasSubstr("difference from Megatron-LM (--lr):"));
  EXPECT_THAT(help_text({"--help=lr"}), Not(HasSubstr("--lr-decay-style")));
  EXPECT_THAT(help_text({"--help=moe-enable-deepep"}), HasSubstr("megatron.cpp does not have yet"));
  EXPECT_THAT(help_text({"--help=tp"}), HasSubstr("did you mean --tensor-model-parallel-size?"));
  EXPECT_THAT(help_text({"--help=cp"}), HasSubstr("did you mean --context-parallel-size?"));
  EXPECT_THAT(help_text({"--help=rotary-base"}), HasSubstr("has an effect only with: --position-embedding-type rope"));
  EXPECT_THAT(help_text({"--help=qk-layernorm"}), HasSubstr("here: rejected: one norm at a time")) << "of two flags";
}

TEST(Help, ListsRejectedFlagsWithTheirReasons) {
  EXPECT_THAT(help_text({}), HasSubstr("  these forms of a mixture of experts:\n"));
  const std::string help = help_text({"--help", "enable-deepep"});
  EXPECT_THAT(help, HasSubstr("  these forms of a mixture of experts:\n      --moe-enable-deepep"));
  EXPECT_THAT(help, Not(HasSubstr("--moe-paged-stash")));
  EXPECT_THAT(help_text({"--help", "forms of a mixture"}), HasSubstr("--moe-paged-stash"));
}

TEST(Help, HasAnExampleThatIsValid) {
  const std::string help = help_text({});
  const size_t begin = help.find("--num-layers 2");
  const size_t end = help.find("\n\n", begin);
  Words words;
  std::string word;
  for (char c : help.substr(begin, end - begin) + " ") {
    if (c != ' ' && c != '\n' && c != '\\') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  EXPECT_EQ(refusal(words), "");
}

}  // namespace
}  // namespace megatron
