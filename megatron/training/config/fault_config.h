// Settings of the checks during training, and of the reaction to results that cannot be right.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace megatron {

/// The reaction to a step whose result is rejected.
enum class RerunMode { kDisabled, kValidateResults, kReportStats };
constexpr auto names_of_enum(RerunMode) {
  return std::to_array<std::pair<RerunMode, std::string_view>>({{RerunMode::kDisabled, "disabled"},
                                                                {RerunMode::kValidateResults, "validate_results"},
                                                                {RerunMode::kReportStats, "report_stats"}});
}

/// The kind of fault that a repeated step simulates (--error-injection-type).
enum class InjectedError { kCorrectResult, kTransientError, kPersistentError };
constexpr auto names_of_enum(InjectedError) {
  return std::to_array<std::pair<InjectedError, std::string_view>>(
      {{InjectedError::kCorrectResult, "correct_result"},
       {InjectedError::kTransientError, "transient_error"},
       {InjectedError::kPersistentError, "persistent_error"}});
}

struct FaultConfig {
  RerunMode rerun_mode = RerunMode::kValidateResults;
  bool check_for_spiky_loss = false;
  bool check_for_large_grads = false;
  std::optional<std::string> result_rejected_tracker_filename;
  int64_t error_injection_rate = 0;  ///< one step in so many is rejected; 0: none
  InjectedError error_injection_type = InjectedError::kTransientError;
  std::optional<int64_t> check_weight_hash_across_dp_replicas_interval;
  bool log_straggler = false;
  bool disable_straggler_on_startup = false;
  int64_t straggler_ctrlr_port = 65535;
  int64_t straggler_minmax_count = 1;
};

}  // namespace megatron
