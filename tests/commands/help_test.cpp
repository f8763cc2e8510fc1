// --help WORD and --help=FLAG of each command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <sstream>

#include "commands/bench/bench.h"
#include "commands/bridge.h"
#include "commands/checkpoint/checkpoint.h"
#include "commands/data.h"
#include "commands/eval.h"
#include "commands/generate.h"
#include "commands/merge_datasets.h"
#include "commands/plan.h"
#include "commands/plot_losses.h"
#include "commands/preprocess_data.h"
#include "commands/tokenize.h"
#include "commands/verify.h"
#include "megatron/models/gpt/gpt_family.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;
using Run = std::function<int(const Words&, std::ostream&, std::ostream&)>;

/// A command, a word of the help on one of its flags, and another flag, which does not have the word.
struct HelpCase {
  std::string command;
  Run run;
  std::string word, flag, other_flag;
};
void PrintTo(const HelpCase& one, std::ostream* out) { *out << one.command; }

Run with_family(int (*command)(const Words&, std::ostream&, std::ostream&, const ModelFamily&)) {
  return [command](const Words& args, std::ostream& out, std::ostream& err) {
    return command(args, out, err, gpt_family());
  };
}

class CommandHelpOf : public ::testing::TestWithParam<HelpCase> {
 protected:
  static std::string help(const Words& args) {
    std::ostringstream out, err;
    EXPECT_EQ(GetParam().run(args, out, err), 0) << err.str();
    EXPECT_EQ(err.str(), "");
    return out.str();
  }
};

TEST_P(CommandHelpOf, AWordListsTheFlagsThatMentionItAlone) {
  const HelpCase& one = GetParam();
  EXPECT_THAT(help({"--help", one.word}),
              AllOf(HasSubstr("  " + one.flag), Not(HasSubstr("  " + one.other_flag)), Not(HasSubstr("usage:"))));
  EXPECT_THAT(help({"--help"}), AllOf(StartsWith("usage: megatron " + one.command), HasSubstr("'--help WORD' lists"),
                                      HasSubstr("  " + one.flag), HasSubstr("  " + one.other_flag)));
}

TEST_P(CommandHelpOf, AFlagPrintsEverythingAboutItAndAnUnknownOneIsReported) {
  const HelpCase& one = GetParam();
  EXPECT_THAT(help({"--help=" + one.flag.substr(2)}), StartsWith(one.flag));
  EXPECT_THAT(help({one.other_flag, "--help=" + one.flag}), StartsWith(one.flag));
  EXPECT_THAT(help({"--help=no-such-flag"}), HasSubstr("--no-such-flag: there is no such flag"));
}

INSTANTIATE_TEST_SUITE_P(
    Commands, CommandHelpOf,
    ::testing::Values(HelpCase{"bench", bench_command, "caches", "--warm-cache", "--json"},
                      HelpCase{"bridge", with_family(bridge_command), "safetensors", "--max-shard-size-mb", "--save"},
                      HelpCase{"checkpoint", checkpoint_command, "infinity", "--check-values", "--keep-last"},
                      HelpCase{"data", data_command, "own document", "--reset-attention-mask", "--split"},
                      HelpCase{"eval", with_family(eval_command), "vocabulary", "--logits", "--device"},
                      HelpCase{"generate", with_family(generate_command), "logits", "--temperature", "--prompt"},
                      HelpCase{"merge_datasets", merge_datasets_command, "mode", "--multimodal", "--input"},
                      HelpCase{"plan", plan_command, "evaluation", "--forward-only", "--schedule-svg"},
                      HelpCase{"plot_losses", plot_losses_command, "legend", "--runs", "--title"},
                      HelpCase{"preprocess_data", preprocess_data_command, "partitions", "--partitions", "--workers"},
                      HelpCase{"tokenize", tokenize_command, "jinja", "--chat-template", "--decode"},
                      HelpCase{"verify", with_family(verify_command), "rotary", "--model", "--layout"}),
    [](const auto& one) { return one.param.command; });

TEST(CommandHelp, OfACommandThatTrainsAlsoKnowsTheFlagsOfTraining) {
  std::ostringstream out, err;
  EXPECT_EQ(bench_command({"step", "--help=seq-length"}, out, err), 0);
  EXPECT_THAT(out.str(), StartsWith("--seq-length"));
  EXPECT_EQ(bench_command({"step", "--help", "dropout"}, out, err), 0);
  EXPECT_THAT(out.str(), HasSubstr("'megatron pretrain_gpt --help dropout' lists the flags of training"));
}

TEST(CommandHelp, OfPreprocessDataGivesTheReasonOfRejectedFlags) {
  std::ostringstream out, err;
  EXPECT_EQ(preprocess_data_command({"--help", "padded"}, out, err), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("--padded-vocab-size"), HasSubstr("a setting of training")));
  out.str("");
  EXPECT_EQ(preprocess_data_command({"--help=padded-vocab-size"}, out, err), 0);
  EXPECT_THAT(out.str(), StartsWith("--padded-vocab-size: padding of the vocabulary is a setting of training"));
}

}  // namespace
}  // namespace megatron
