// How progress is shown where a command prints.
#pragma once

#include <iosfwd>
#include <string>

#include "megatron/telemetry/progress.h"

namespace megatron {

/// The bar is for a person who watches: elsewhere the lines of the command tell as much.
/// @param has_launcher  mpirun gives its ranks a terminal, and what they write there goes anywhere: no bar then
ProgressBarOptions bar_options(const std::ostream& out, bool has_launcher);

/// Prints a long text. On a terminal it goes through $PAGER, or 'less -FRX' if there is one; PAGER= turns that off.
void show_text(const std::string& text, std::ostream& out);

}  // namespace megatron
