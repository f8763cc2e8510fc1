#include "megatron/training/checkpoint/checkpoint_tokenizer.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/sha256.h"
#include "megatron/tokenizers/tokenizer_factory.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kIdentityFile = "tokenizer_identity.json";
constexpr const char* kFolder = "tokenizer";
constexpr const char* kNullTokenizer = "NullTokenizer";

std::string sha256_of(const std::vector<TokenizerFile>& files) {
  Sha256 hash;
  for (const TokenizerFile& file : files) {
    const std::string heading = fmt::format("{} {}\n", file.name, file.content.size());
    hash.add(std::as_bytes(std::span(heading)));
    hash.add(std::as_bytes(std::span(file.content)));
  }
  return hash.hex();
}

std::optional<TokenizerRecord> stored_record(const FileSystem& files, const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kIdentityFile);
  if (!files.exists(path)) return std::nullopt;
  try {
    const OrderedJson json = OrderedJson::parse(read_file(files, path));
    return TokenizerRecord{.type = json.at("tokenizer_type").get<std::string>(),
                           .vocab_size = json.at("vocab_size").get<int64_t>(),
                           .vocabulary_sha256 = json.at("vocabulary_sha256").get<std::string>()};
  } catch (const OrderedJson::exception&) {
    throw CheckpointError(
        fmt::format("[checkpoint] {} is damaged. Restore it, or load another checkpoint (--ckpt-step).", path));
  }
}

std::string describe(const TokenizerRecord& record) {
  return fmt::format("{} of {} tokens", record.type, record.vocab_size);
}

std::optional<std::string> difference(const TokenizerRecord& stored, const TokenizerRecord& own) {
  if (stored.type != own.type || stored.vocab_size != own.vocab_size)
    return fmt::format("was trained with another tokenizer: {} there, {} here", describe(stored), describe(own));
  if (own.vocabulary_sha256.empty() || stored.vocabulary_sha256 == own.vocabulary_sha256) return std::nullopt;
  return fmt::format("was trained with another vocabulary of {}: its SHA-256 is {} there, {} here", describe(own),
                     stored.vocabulary_sha256, own.vocabulary_sha256);
}

std::optional<int64_t> count_in(const OrderedJson& arguments, const char* name) {
  const auto found = arguments.find(name);
  return found != arguments.end() && found->is_number_integer() ? std::optional(found->get<int64_t>()) : std::nullopt;
}

/// Says whether an embedding with the stored number of rows is one for `vocab_size` tokens: with the padding of the
/// stored run, or with that of this one.
bool fits_rows(const OrderedJson& arguments, int64_t stored_rows, int64_t vocab_size, const PretrainConfig& config) {
  if (stored_rows == config.transformer.padded_vocab_size) return true;
  const int64_t divisor =
      count_in(arguments, "make_vocab_size_divisible_by").value_or(config.tokenizer.make_vocab_size_divisible_by);
  const int64_t tensor_parallel = count_in(arguments, "tensor_model_parallel_size").value_or(1);
  return divisor >= 1 && tensor_parallel >= 1 && stored_rows == padded_vocab_size(vocab_size, divisor, tensor_parallel);
}

/// By what Megatron stores: --tokenizer-type, --vocab-size if it was given, and the number of rows.
std::optional<std::string> difference(const OrderedJson& arguments, const TokenizerRecord& own,
                                      const PretrainConfig& config) {
  const auto type = arguments.find("tokenizer_type");
  if (type == arguments.end() || !type->is_string()) return std::nullopt;
  const std::string stored_type = type->get<std::string>();
  const std::optional<int64_t> size = count_in(arguments, "vocab_size"),
                               rows = count_in(arguments, "padded_vocab_size");
  if (size) {
    // The NullTokenizer of Megatron Core 0.16 has one token more than --vocab-size.
    const int64_t tolerance = own.type == kNullTokenizer ? 1 : 0;
    if (stored_type == own.type && std::abs(*size - own.vocab_size) <= tolerance) return std::nullopt;
    return difference({.type = stored_type, .vocab_size = *size}, own);
  }
  if (stored_type == own.type && (!rows || fits_rows(arguments, *rows, own.vocab_size, config))) return std::nullopt;
  return fmt::format("was trained with another tokenizer: {} with {} rows of embeddings there, {} with {} rows here",
                     stored_type, rows ? fmt::format("{}", *rows) : "an unknown number of", describe(own),
                     config.transformer.padded_vocab_size);
}

}  // namespace

TokenizerRecord tokenizer_record(const std::string& type, const Tokenizer& tokenizer) {
  std::vector<TokenizerFile> files = tokenizer.files();
  std::string hash = sha256_of(files);
  return {.type = type,
          .vocab_size = tokenizer.vocab_size(),
          .vocabulary_sha256 = std::move(hash),
          .files = std::move(files)};
}

void save_tokenizer(FileSystem& files, const std::string& checkpoint, const TokenizerRecord& record, bool with_files) {
  const OrderedJson json = {{"tokenizer_type", record.type},
                            {"vocab_size", record.vocab_size},
                            {"vocabulary_sha256", record.vocabulary_sha256}};
  write_synced(files, join_path(checkpoint, kIdentityFile), json.dump(2) + "\n");
  if (!with_files || record.files.empty()) return;
  const std::string folder = join_path(checkpoint, kFolder);
  files.create_directories(folder);
  for (const TokenizerFile& file : record.files) write_synced(files, join_path(folder, file.name), file.content);
  files.sync_directory(folder);
}

std::vector<std::string> stored_tokenizer_names() { return {kFolder, kIdentityFile}; }

std::string stored_tokenizer_folder(const std::string& checkpoint) { return join_path(checkpoint, kFolder); }

std::optional<std::string> other_tokenizer(const FileSystem& files, const std::string& checkpoint,
                                           const std::string& arguments, const TokenizerRecord& own,
                                           const PretrainConfig& config) {
  if (const auto stored = stored_record(files, checkpoint)) return difference(*stored, own);
  return difference(OrderedJson::parse(arguments), own, config);
}

void require_same_tokenizer(const FileSystem& files, const std::string& checkpoint, const std::string& arguments,
                            const std::optional<TokenizerRecord>& own, const PretrainConfig& config,
                            const MessageLog& log) {
  const TokenizerRecord of_flags{.type = config.tokenizer.tokenizer_type, .vocab_size = config.transformer.vocab_size};
  const auto other = other_tokenizer(files, checkpoint, arguments, own.value_or(of_flags), config);
  if (!other) return;
  const std::string text = fmt::format("{} {}", checkpoint, *other);
  require<CheckpointError>(config.checkpoint.allow_other_tokenizer,
                           "[checkpoint] {}. Its weights take the same ids for other text. Give the checkpoint's "
                           "tokenizer, start a new run from the weights with --finetune, or resume nevertheless with "
                           "--allow-other-tokenizer.",
                           text);
  log.warning(text + " (--allow-other-tokenizer)");
}

void take_stored_files(const FileSystem& files, const std::string& checkpoint, TokenizerConfig& config) {
  const auto take = [&](std::string_view name, std::optional<std::string>& file) {
    const std::string path = join_path(join_path(checkpoint, kFolder), name);
    if (files.exists(path)) file = path;
  };
  if (config.tokenizer_type == "CharTokenizer") take("characters.txt", config.vocab_file);
  if (config.tokenizer_type == "GPT2BPETokenizer") {
    take("vocab.json", config.vocab_file);
    take("merges.txt", config.merge_file);
  }
  if (config.tokenizer_type.starts_with("BertWordPiece")) take("vocab.txt", config.vocab_file);
  if (config.tokenizer_type == "TikTokenizer") {
    take("tokenizer.json", config.tokenizer_model);
    take("tokenizer.tiktoken", config.tokenizer_model);
  }
  if (tokenizer_reads(config.tokenizer_type, "--tokenizer-sentencepiece-legacy"))
    take("tokenizer.model", config.tokenizer_model);
  if (config.tokenizer_type == "HuggingFaceTokenizer") {
    take("tokenizer.json", config.tokenizer_model);
    // The files beside it name special tokens.
    if (config.tokenizer_model == join_path(join_path(checkpoint, kFolder), "tokenizer.json"))
      config.tokenizer_model = join_path(checkpoint, kFolder);
  }
}

}  // namespace megatron
