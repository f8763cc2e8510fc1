// megatron plot_losses: the loss curves of several runs on one picture.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// @param args  flags behind the command's name. @return the exit status
int plot_losses_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
