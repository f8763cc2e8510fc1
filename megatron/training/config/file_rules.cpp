// Rules of data, tokenizer, checkpoints and logs.
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

/// Batches of a program that uses the library have no files.
void check_external(const DataConfig& data, int num_sources, Mistakes& mistakes) {
  const auto reject = [&](bool given, std::string_view flag) {
    if (given)
      mistakes.add(
          {"--dataloader-type", flag},
          "--dataloader-type external with {}: batches come from the program that calls the library. Leave one "
          "of them out",
          flag);
  };
  reject(data.mock_data, "--mock-data");
  reject(num_sources > data.mock_data, "--data-path");
  reject(data.split.has_value(), "--split");
  reject(data.sft, "--sft");
  reject(data.fill_in_the_middle.fim_data, "--fim-data");
  reject(data.per_dataset_sequences_path.has_value(), "--per-dataset-sequences-path");
}

void resolve_sources(DataConfig& data, Mistakes& mistakes) {
  const bool per_split = !data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty();
  const int num_sources = data.mock_data + !data.data_path.empty() + data.data_args_path.has_value() + per_split +
                          data.per_split_data_args_path.has_value();
  const size_t num_before = mistakes.texts().size();
  if (data.dataloader_type == "external") return check_external(data, num_sources, mistakes);
  if (num_sources != 1)
    mistakes.add({"--mock-data", "--data-path", "--data-args-path", "--train-data-path", "--valid-data-path",
                  "--test-data-path", "--per-split-data-args-path"},
                 "{} data sources are given, one is needed: --mock-data, --data-path, --data-args-path, "
                 "--train-data-path with --valid-data-path and --test-data-path, or --per-split-data-args-path",
                 num_sources);
  if (data.data_args_path && !data.split)
    mistakes.add({"--data-args-path", "--split"}, "--data-args-path needs --split, such as --split 969,30,1");
  if (mistakes.texts().size() > num_before) mistakes.doubt("--data-path");
  if (!data.data_path.empty() && !data.split) data.split = "969, 30, 1";
  if (!data.dataloader_type) data.dataloader_type = "single";
}

void check_sequence_counts(const DataConfig& data, Mistakes& mistakes) {
  if (data.per_dataset_sequences_path && data.mock_data)
    mistakes.add({"--per-dataset-sequences-path", "--mock-data"},
                 "--per-dataset-sequences-path with --mock-data: made-up sequences have no files. Leave it out");
}

void check_documents(const DataConfig& data, Mistakes& mistakes) {
  if (!data.dataloader_inter_document_masking) return;
  const auto reject = [&](bool given, std::string_view flag) {
    if (given)
      mistakes.add({"--dataloader-inter-document-masking", flag},
                   "--dataloader-inter-document-masking with {}: it separates documents and restarts their positions "
                   "already. Leave out {}",
                   flag, flag);
  };
  reject(data.reset_attention_mask, "--reset-attention-mask");
  reject(data.reset_position_ids, "--reset-position-ids");
}

void resolve_conversations(PretrainConfig& config, Mistakes& mistakes) {
  const DataConfig& data = config.data;
  if (!data.sft) return;
  const auto reject = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) mistakes.add({"--sft", flag}, "--sft with {}: {}", flag, reason);
  };
  reject(data.mock_data, "--mock-data", "there are no made-up conversations. Give files with --data-path");
  constexpr std::string_view kSeparated = "conversations of a sample are separated already. Leave it out";
  reject(data.reset_attention_mask, "--reset-attention-mask", kSeparated);
  reject(data.reset_position_ids, "--reset-position-ids", kSeparated);
  reject(data.dataloader_inter_document_masking, "--dataloader-inter-document-masking", kSeparated);
  reject(data.per_dataset_sequences_path.has_value(), "--per-dataset-sequences-path",
         "files of conversations have no counts. Leave it out");
  reject(data.eod_mask_loss, "--eod-mask-loss", "the roles of messages decide on what there is a loss. Leave it out");
  // The format of a conversation has all special tokens.
  if (config.tokenizer.tokenizer_type == "HuggingFaceTokenizer")
    config.tokenizer.tokenizer_hf_no_include_special_tokens = true;
}

void check_fill_in_the_middle(const PretrainConfig& config, Mistakes& mistakes) {
  const DataConfig& data = config.data;
  const FillInTheMiddleConfig& fill = data.fill_in_the_middle;
  if (!fill.fim_data) return;
  const auto reject = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) mistakes.add({"--fim-data", flag}, "--fim-data with {}: {}", flag, reason);
  };
  reject(data.mock_data, "--mock-data", "made-up sequences are no text. Give files with --data-path");
  reject(data.sft, "--sft", "conversations are never changed. Leave one of them out");
  reject(data.dataloader_inter_document_masking, "--dataloader-inter-document-masking",
         "changed documents begin at other places than in the data. Give --reset-attention-mask and "
         "--reset-position-ids, which go by --fim-eod-token");
  if (fill.fim_split_sample && !fill.fim_fragment_rate)
    mistakes.add({"--fim-split-sample", "--fim-fragment-rate"},
                 "--fim-split-sample {} needs --fim-fragment-rate: the part of fragments to change, such as 0.5",
                 *fill.fim_split_sample);
}

void check_tokenizer(const TokenizerConfig& tokenizer, Mistakes& mistakes) {
  const std::string& type = tokenizer.tokenizer_type;
  const size_t num_before = mistakes.texts().size();
  const auto need = [&](std::string_view wanted, bool given, std::string_view flag) {
    if (type == wanted && !given)
      mistakes.add({"--tokenizer-type", flag}, "--tokenizer-type {}{} needs {}", type,
                   type == TokenizerConfig{}.tokenizer_type ? " (the default)" : "", flag);
  };
  need("GPT2BPETokenizer", tokenizer.vocab_file.has_value(), "--vocab-file");
  need("GPT2BPETokenizer", tokenizer.merge_file.has_value(), "--merge-file");
  if (type == "CharTokenizer" && !tokenizer.vocab_file)
    mistakes.add({"--tokenizer-type", "--vocab-file"}, "--tokenizer-type CharTokenizer needs --vocab-file. {}",
                 kHowToMakeACharVocabulary);
  need("NullTokenizer", tokenizer.vocab_size.has_value(), "--vocab-size");
  for (const char* name : {"BertWordPieceLowerCase", "BertWordPieceCase"})
    need(name, tokenizer.vocab_file.has_value(), "--vocab-file");
  for (const char* name : {"HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
                           "Llama2Tokenizer", "TikTokenizer"})
    need(name, tokenizer.tokenizer_model.has_value(), "--tokenizer-model");
  if (tokenizer.null_tokenizer_eod_id && tokenizer.vocab_size &&
      *tokenizer.null_tokenizer_eod_id >= *tokenizer.vocab_size)
    mistakes.add({"--null-tokenizer-eod-id", "--vocab-size"}, "--null-tokenizer-eod-id {} is not below --vocab-size {}",
                 *tokenizer.null_tokenizer_eod_id, *tokenizer.vocab_size);
  if (mistakes.texts().size() > num_before) mistakes.doubt("--tokenizer-type");  // that is what is to be mended first
}

void check_local_checkpoints(const PretrainConfig& config, Mistakes& mistakes) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.is_local()) return;
  if (!checkpoint.non_persistent_local_ckpt_dir)
    mistakes.add({"--non-persistent-ckpt-type", "--non-persistent-local-ckpt-dir"},
                 "--non-persistent-ckpt-type local needs --non-persistent-local-ckpt-dir: a folder on a disk of each "
                 "node");
  if (config.training.phase_transition_iterations)
    mistakes.add({"--non-persistent-ckpt-type", "--phase-transition-iterations"},
                 "--phase-transition-iterations with --non-persistent-ckpt-type local: the iteration to continue from "
                 "must be known before data is built, and ranks compare local checkpoints later. Use "
                 "--non-persistent-ckpt-type global");
  if (!checkpoint.replication) return;
  if (!checkpoint.replication_jump)
    return mistakes.add({"--replication", "--replication-jump"},
                        "--replication needs --replication-jump: the distance between ranks that hold copies of each "
                        "other's checkpoints, such as the number of ranks of a node");
  const int64_t jump = *checkpoint.replication_jump, factor = checkpoint.replication_factor;
  const int64_t ranks = config.parallel.world_size;
  if (jump > ranks || factor > ranks || ranks % (jump * factor) != 0)
    mistakes.add({"--replication-jump", "--replication-factor"},
                 "--replication-jump {} and --replication-factor {} make groups of {} * {} ranks, which do not divide "
                 "{} rank{} evenly. Give a jump and a factor whose product divides the number of ranks, or leave "
                 "--replication out",
                 jump, factor, jump, factor, ranks, ranks == 1 ? "" : "s");
}

}  // namespace

void resolve_data(PretrainConfig& config, Mistakes& mistakes) {
  if (config.data.dataloader_type == "external" && config.validation.full_validation)
    mistakes.add({"--dataloader-type", "--full-validation"},
                 "--dataloader-type external with --full-validation: sets of a program have no end. Give --eval-iters");
  resolve_sources(config.data, mistakes);
  check_sequence_counts(config.data, mistakes);
  check_documents(config.data, mistakes);
  resolve_conversations(config, mistakes);
  check_fill_in_the_middle(config, mistakes);
  check_tokenizer(config.tokenizer, mistakes);
}

void resolve_checkpoint(PretrainConfig& config, Mistakes& mistakes) {
  CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.save && !checkpoint.save_interval)
    mistakes.add({"--save", "--save-interval"}, "--save needs --save-interval: steps between checkpoints");
  if (checkpoint.non_persistent_save_interval && !checkpoint.non_persistent_ckpt_type)
    mistakes.add({"--non-persistent-save-interval", "--non-persistent-ckpt-type"},
                 "--non-persistent-save-interval {} needs --non-persistent-ckpt-type global or local",
                 *checkpoint.non_persistent_save_interval);
  check_local_checkpoints(config, mistakes);
  if (checkpoint.save_retain_interval && checkpoint.save_interval &&
      *checkpoint.save_retain_interval % *checkpoint.save_interval != 0)
    mistakes.add(
        {"--save-retain-interval", "--save-interval"},
        "--save-retain-interval {} is not a multiple of --save-interval {}: checkpoints to keep would never be written",
        *checkpoint.save_retain_interval, *checkpoint.save_interval);
  if (checkpoint.override_ckpt_iteration && checkpoint.finetune)
    mistakes.add({"--override-ckpt-iteration", "--finetune"},
                 "--override-ckpt-iteration {} and --finetune exclude each other: --finetune starts at step 0",
                 *checkpoint.override_ckpt_iteration);
  const auto needs_load = [&](bool given, std::string_view flag) {
    if (given && !checkpoint.load) mistakes.add({flag, "--load"}, "{} needs --load", flag);
  };
  if (checkpoint.use_checkpoint_args && !checkpoint.load && !checkpoint.pretrained_checkpoint)
    mistakes.add({"--use-checkpoint-args", "--load", "--pretrained-checkpoint"},
                 "--use-checkpoint-args needs --load or --pretrained-checkpoint");
  if (checkpoint.ckpt_step && !checkpoint.load && !checkpoint.pretrained_checkpoint)
    mistakes.add({"--ckpt-step", "--load", "--pretrained-checkpoint"},
                 "--ckpt-step needs --load or --pretrained-checkpoint");
  if (checkpoint.load_hf && checkpoint.pretrained_checkpoint)
    mistakes.add({"--load-hf", "--pretrained-checkpoint"},
                 "--load-hf and --pretrained-checkpoint exclude each other: weights start from one place");
  needs_load(checkpoint.exit_on_missing_checkpoint, "--exit-on-missing-checkpoint");
  if (config.validation.skip_train) checkpoint.no_load_optim = true;
  if (checkpoint.load_main_params_from_ckpt && !checkpoint.no_load_optim)
    mistakes.add({"--load-main-params-from-ckpt", "--no-load-optim"},
                 "--load-main-params-from-ckpt needs --no-load-optim: the optimizer's state holds the main parameters");
}

void resolve_logging(PretrainConfig& config, Mistakes& mistakes) {
  LoggingConfig& logging = config.logging;
  if (logging.wandb_project && !logging.wandb_exp_name)
    mistakes.add({"--wandb-project", "--wandb-exp-name"}, "--wandb-project needs --wandb-exp-name, the run's name");
  if (logging.wandb_project && !logging.wandb_save_dir && !config.checkpoint.save)
    mistakes.add({"--wandb-project", "--wandb-save-dir", "--save"},
                 "--wandb-project needs --wandb-save-dir, or --save, in whose folder wandb the run is written");
  if (logging.wandb_project && !logging.wandb_save_dir && config.checkpoint.save)
    logging.wandb_save_dir = *config.checkpoint.save + "/wandb";
  if (logging.log_memory_interval && *logging.log_memory_interval % logging.log_interval != 0)
    mistakes.add({"--log-memory-interval", "--log-interval"},
                 "--log-memory-interval {} is not a multiple of --log-interval {}", *logging.log_memory_interval,
                 logging.log_interval);
  if (logging.log_progress && !config.checkpoint.save)
    mistakes.add({"--log-progress", "--save"}, "--log-progress needs --save, the folder of progress.txt");
}

}  // namespace megatron
