// Progress bars and pagers on a terminal.
#pragma once

#include <iosfwd>
#include <string>

#include "megatron/telemetry/progress.h"

namespace megatron {

/// A progress bar is shown only on a terminal; elsewhere the command's lines are enough.
/// @param has_launcher  no bar: mpirun gives its ranks a terminal, but does not keep the position of their output
ProgressBarOptions bar_options(const std::ostream& out, bool has_launcher);

/// Prints a long text. On a terminal it goes through $PAGER, or 'less -FRX' if there is one; PAGER= turns that off.
void show_text(const std::string& text, std::ostream& out);

}  // namespace megatron
