// The command line of `megatron pretrain_gpt`: Megatron's flags, defaults and rules.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/given_fields.h"
#include "megatron/base/mistakes.h"
#include "megatron/models/gpt/gpt_family.h"
#include "megatron/optimizer/optimizer_config.h"
#include "megatron/training/config/checkpoint_config.h"
#include "megatron/training/config/data_config.h"
#include "megatron/training/config/experts_config.h"
#include "megatron/training/config/fault_config.h"
#include "megatron/training/config/logging_config.h"
#include "megatron/training/config/model_config.h"
#include "megatron/training/config/no_effect_config.h"
#include "megatron/training/config/parallel_config.h"
#include "megatron/training/config/profiling_config.h"
#include "megatron/training/config/scheduler_config.h"
#include "megatron/training/config/training_config.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// All settings of pretrain_gpt. A default-constructed one has the values of a command line without flags.
struct PretrainConfig {
  ModelConfig model;
  ExpertsConfig experts;
  TransformerConfig transformer;  ///< what the model is built from; resolved from `model` and others
  ParallelConfig parallel;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  TrainingConfig training;
  ValidationConfig validation;
  CudaGraphConfig cuda_graph;
  DataConfig data;
  TokenizerConfig tokenizer;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  ProfilingConfig profiling;
  FaultConfig faults;
  LaunchConfig launch;
  NoEffectConfig no_effect;
  ModelFamily family = gpt_family();  ///< or one that a program brings (docs/add_a_model.md), with its own settings
  GivenFields given;                  ///< names of what the command line has set
};

/// The values of a command line of `megatron pretrain_NAME` without flags.
PretrainConfig default_config(const ModelFamily& family);

/// Gives the arguments (JSON text) of the checkpoint that --load or --pretrained-checkpoint names, or of the model that
/// --load-hf names; asked only with --use-checkpoint-args or --load-hf.
using StoredArguments = std::function<std::string(const CheckpointConfig&)>;

/// Adds mistakes that show beyond the flags, such as in the files that they name (training/training_data.h), so that
/// one attempt shows all. The config is complete, or one whose mistakes are known already.
using FurtherMistakes = std::function<void(const PretrainConfig&, Mistakes&)>;

/// kMegatron: the rules of Megatron's command line. kRunnable: also the rules that Megatron checks when training
/// begins, and the settings that this version cannot run.
enum class RuleSet { kMegatron, kRunnable };

/// Parses, fills in what follows from what was given, and checks every rule.
/// @param args        words after the command's name
/// @param world_size  ranks that a launcher has started; 1 if none has: then --nproc-per-node says how many there are
/// @param family      whose own flags are known too
/// @throw ConfigError with all mistakes: each with the rule, the values and the remedy.
/// @throw NotSupported for valid settings that are not supported yet (kRunnable).
PretrainConfig parse_pretrain_gpt(const std::vector<std::string>& args, int world_size,
                                  const StoredArguments& stored_arguments = {}, RuleSet rules = RuleSet::kRunnable,
                                  const FurtherMistakes& further = {}, const ModelFamily& family = gpt_family());

/// The help that the arguments ask for, as for any command (base/command_help.h). It includes rejected flags, and the
/// help on one flag includes the differences from Megatron-LM.
std::string help_text(const std::vector<std::string>& args, const ModelFamily& family = gpt_family());
/// All arguments by name, as Python writes their values.
std::map<std::string, std::string> arguments_texts(const PretrainConfig& config);
/// Megatron's start banner: one line per argument, sorted; without --print-config those that differ from the defaults.
std::string arguments_block(const PretrainConfig& config);
/// The differences of this run from Megatron's, and the given flags without effect; empty if there are none.
std::string notes_block(const PretrainConfig& config);

/// All arguments under Megatron's names as one JSON object: the `args` of a checkpoint.
std::string arguments_to_json(const PretrainConfig& config);
/// The inverse; `transformer` is complete too. Names that this version does not know are left out.
/// @throw ConfigError for values that do not fit, or if they do not make a model.
PretrainConfig arguments_from_json(const std::string& json, const ModelFamily& family = gpt_family());

/// Rejects valid configurations that this version cannot run, by Field::not_yet and Field::limits.
/// @throw NotSupported with all reasons.
void require_runnable(const PretrainConfig& config);

}  // namespace megatron
