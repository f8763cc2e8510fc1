// The differences between megatron.cpp and Megatron-LM for the same command line. docs/differences.md lists the same.
#pragma once

#include <string>
#include <vector>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

struct Difference {
  std::string topic;
  std::string megatron;  ///< what Megatron-LM does
  std::string ours;      ///< what happens here, and why
  bool in_force;         ///< whether this run shows it; differences that reject a command line never are
  std::string flag;      ///< whose field has it; empty: it is of no single flag
};

/// The differences of no single flag first, then those of the fields in their order.
std::vector<Difference> differences(const PretrainConfig& config);

/// Settings that were given and change nothing in this run because of other settings: one sentence each.
std::vector<std::string> idle_settings(const PretrainConfig& config);

}  // namespace megatron
