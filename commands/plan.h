// megatron plan: predicts time and memory of a layout before training.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Draws pipeline schedules as text and SVG, with bubble and peak activations of each rank; with --memory prints what a
/// run holds on a GPU. @return exit status.
int plan_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
