// Runs commands on wrong input, and checks their errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commands/exit_code.h"
#include "tests/testing/words.h"

namespace megatron::testing {

enum class Command { kPretrainGpt, kPreprocessData, kGenerate, kData };
// Their names in tables of cases.
inline constexpr Command kPretrain = Command::kPretrainGpt, kPreprocess = Command::kPreprocessData,
                         kGenerate = Command::kGenerate, kInspect = Command::kData;
inline constexpr ExitCode kUsage = ExitCode::kUsage;

/// In words and texts, '@' stands for a folder of the case, which holds
///   text.txt         paragraphs of the characters "\n abcdefgh"
///   chars.txt        these characters, for CharTokenizer
///   data.bin, .idx   the text, a document each paragraph
///   ckpt/            a checkpoint of iteration 2 of a small model
struct BadInput {
  std::string name;
  Command command = Command::kPretrainGpt;
  Words words = {};  // appended to valid arguments; the last value of a flag counts
  ExitCode code = ExitCode::kUsage;
  Words texts = {};                                            // parts that the error must have
  std::function<void(const std::string& folder)> damage = {};  // before the command runs
  Words without = {};                                          // valid flags to leave out, with their values
  std::optional<uint64_t> most_file_bytes = {};                // limit of file sizes, as on a full disk
  std::string may_write = "cache/";                            // where new files are allowed
};

struct Outcome {
  int status;
  std::string out, err;
};
Outcome run(Command command, const Words& words);

/// Runs the command. Expects the exit code, one error with the command's heading and the texts, all files as they were
/// before, and no new ones.
void expect_refusal(const BadInput& input);
void expect_refusals(const std::vector<BadInput>& inputs);

/// Runs the command on flawed but usable input. Expects success. @return its output.
std::string expect_success(const BadInput& input);

/// Damage to the file FOLDER/`name`.
std::function<void(const std::string&)> write(const std::string& name, const std::string& content);
std::function<void(const std::string&)> fifo(const std::string& name);  // in its place
std::function<void(const std::string&)> remove(const std::string& name);
std::function<void(const std::string&)> truncate(const std::string& name, int64_t bytes);  // below 0: from the end
std::function<void(const std::string&)> overwrite(const std::string& name, int64_t offset, const std::string& bytes);

}  // namespace megatron::testing
