// megatron plot_losses: draws the loss curves of several runs on one picture.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// @param args  the arguments after "plot_losses". @return the exit status
int plot_losses_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
