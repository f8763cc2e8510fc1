// megatron plan: what a layout means, before anything runs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Draws pipeline schedules as text and SVG, with bubble and peak activations of each rank. @return exit status.
int plan_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
