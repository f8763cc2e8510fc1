// The flags of megatron verify.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/rank_layout.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// A built-in model, in flags of pretrain_gpt.
enum class BuiltInModel { kGpt2, kLlama, kMixtral };
constexpr std::array<std::pair<BuiltInModel, std::string_view>, 3> names_of_enum(BuiltInModel) {
  return {{{BuiltInModel::kGpt2, "gpt2"}, {BuiltInModel::kLlama, "llama"}, {BuiltInModel::kMixtral, "mixtral"}}};
}

struct VerifyConfig {
  std::vector<std::string> layouts;  // texts; none: a pairwise cover
  int64_t num_steps = 3;
  BuiltInModel model = BuiltInModel::kGpt2;
  std::vector<std::string> model_arguments;  // flags of pretrain_gpt; none: those of `model`
};

/// The layouts and configurations that the flags give, resolved except for the vocabulary, which the tokenizer sets.
struct VerifyPlan {
  struct Item {
    RankLayout layout;
    PretrainConfig config;
  };
  PretrainConfig one_rank;
  std::vector<Item> layouts;
  size_t num_misfits = 0;  // omitted combinations that do not fit the model
};

/// Reads the arguments after "verify". @throw ConfigError with all mistakes in them and, if there are any, those of the
/// model
VerifyConfig parse_verify(const std::vector<std::string>& args);
/// @throw ConfigError with all mistakes that the model and the given layouts have
VerifyPlan plan_of(const VerifyConfig& config);
/// The text that --help, --help WORD or --help=FLAG prints.
std::string verify_help(const std::vector<std::string>& args);

}  // namespace megatron
