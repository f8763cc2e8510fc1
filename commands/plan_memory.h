// megatron plan --memory: the GPU memory of a run, without a GPU.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// The flag that asks for it.
inline constexpr std::string_view kPlanMemory = "--memory";

/// Prints the planned memory of the rank that holds most, and whether it fits; if not, which flags would make it fit.
/// @param args  with kPlanMemory, --gpu-memory and flags of pretrain_gpt. @throw ConfigError with all mistakes
void show_memory_plan(const std::vector<std::string>& args, std::ostream& out);

/// The text that --memory --help, --help WORD or --help=FLAG prints.
std::string plan_memory_help(const std::vector<std::string>& args);

}  // namespace megatron
