// Where megatron.cpp does something else than Megatron-LM for the same command line. docs/differences.md lists the
// same.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

struct Difference {
  std::string_view topic;
  std::string_view megatron;                ///< what Megatron-LM does
  std::string_view ours;                    ///< what happens here, and why
  bool (*in_force)(const PretrainConfig&);  ///< whether a run shows it; differences that refuse a command line never do
};

std::span<const Difference> differences();

/// Settings that were given and change nothing in this run because of other settings: one sentence each.
std::vector<std::string> idle_settings(const PretrainConfig& config);

}  // namespace megatron
