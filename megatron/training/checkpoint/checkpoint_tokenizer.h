// The tokenizer that belongs to a checkpoint's weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Identifies a tokenizer, so that two runs can compare whether token ids have the same meaning.
struct TokenizerRecord {
  std::string type;  ///< --tokenizer-type
  int64_t vocab_size = 0;
  std::string vocabulary_sha256 = {};     ///< empty where it is not known
  std::vector<TokenizerFile> files = {};  ///< Tokenizer::files()
};

TokenizerRecord tokenizer_record(const std::string& type, const Tokenizer& tokenizer);

/// Writes into the folder of a checkpoint that is not committed yet, synced: `tokenizer_identity.json`, which Megatron
/// ignores, and with `with_files` (--no-save-tokenizer-assets) the files themselves in `tokenizer/`, as Megatron does.
void save_tokenizer(FileSystem& files, const std::string& checkpoint, const TokenizerRecord& record, bool with_files);

/// The names of what save_tokenizer() writes, a folder and a file.
std::vector<std::string> stored_tokenizer_names();
/// The folder of a checkpoint that holds the files of its tokenizer, where they are saved.
std::string stored_tokenizer_folder(const std::string& checkpoint);

/// How the tokenizer of a checkpoint differs from `own`, as the end of a sentence about the checkpoint; nothing if they
/// are the same as far as both are known. A checkpoint of Megatron's holds type and sizes alone, in its arguments.
/// @param arguments  of the checkpoint, as JSON. @param config  of the run, with its sizes settled.
/// @throw CheckpointError if the record in the checkpoint is damaged.
std::optional<std::string> other_tokenizer(const FileSystem& files, const std::string& checkpoint,
                                           const std::string& arguments, const TokenizerRecord& own,
                                           const PretrainConfig& config);

/// Refuses another tokenizer, or warns of it with --allow-other-tokenizer. @param own  nothing: by type and size alone.
void require_same_tokenizer(const FileSystem& files, const std::string& checkpoint, const std::string& arguments,
                            const std::optional<TokenizerRecord>& own, const PretrainConfig& config,
                            const MessageLog& log);

/// Points `config`, which is that of the checkpoint's run, to the files in the checkpoint, if it carries them.
void take_stored_files(const FileSystem& files, const std::string& checkpoint, TokenizerConfig& config);

}  // namespace megatron
