// How a load treats tensors of a checkpoint that are missing or unexpected (--dist-ckpt-strictness).
#pragma once

#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace megatron {

struct CheckpointMetadata;
struct MessageLog;

/// Megatron Core's modes (dist_checkpointing/validation.py), by its names. The "return" modes of a library call have no
/// caller to return to in a program; they log.
enum class StrictHandling {
  kAssumeOkUnexpected,  // no check: reading the first unexpected tensor is an error
  kLogUnexpected,
  kLogAll,
  kRaiseUnexpected,
  kRaiseAll,
  kReturnUnexpected,
  kReturnAll,
  kIgnoreAll
};
constexpr auto names_of_enum(StrictHandling) {
  return std::to_array<std::pair<StrictHandling, std::string_view>>({
      {StrictHandling::kAssumeOkUnexpected, "assume_ok_unexpected"},
      {StrictHandling::kLogUnexpected, "log_unexpected"},
      {StrictHandling::kLogAll, "log_all"},
      {StrictHandling::kRaiseUnexpected, "raise_unexpected"},
      {StrictHandling::kRaiseAll, "raise_all"},
      {StrictHandling::kReturnUnexpected, "return_unexpected"},
      {StrictHandling::kReturnAll, "return_all"},
      {StrictHandling::kIgnoreAll, "ignore_all"},
  });
}

/// Keys of tensors. Objects are not compared: the common state is always there, and Megatron's others (random number
/// generators, extra states of modules) hold nothing that is read here.
struct KeyMismatch {
  std::set<std::string> unexpected;  // requested, not in the checkpoint
  std::set<std::string> missing;     // in the checkpoint, not requested
};

/// @param requested  by all ranks together.
KeyMismatch compare_keys(const CheckpointMetadata& stored, const std::set<std::string>& requested);

/// Says whether tensors that are not in the checkpoint are left out of the load, and keep their values.
bool leaves_out_unexpected(StrictHandling handling);

/// Logs or raises what `handling` says.
/// @param directory  of the checkpoint, for the text. @throw CheckpointError
void report_mismatch(StrictHandling handling, const KeyMismatch& mismatch, const std::string& directory,
                     const MessageLog& log);

}  // namespace megatron
