// The folder for files that the program can make again.
#pragma once

#include <string>

#include "commands/launch/launch_environment.h"

namespace megatron {

/// $XDG_CACHE_HOME/megatron, or $HOME/.cache/megatron; empty where neither is an absolute path. Not made here.
/// Source: XDG Base Directory Specification 0.8.
std::string cache_folder(const Variable& variable);

/// Identifies this build and its settings in caches of measured speeds.
std::string build_of_kernels(const Variable& variable);

}  // namespace megatron
