// Signals by which the system reports that a file cannot be used.
#pragma once

namespace megatron {

/// Installs the handlers for the whole process. Call it before other threads start.
///
/// SIGBUS (a mapped file was truncated, or its disk failed while it was read): the process names the file
/// and ends with ExitCode::kData. SIGXFSZ (a file would exceed `ulimit -f`) is ignored, so that the write
/// fails with an error that names the file.
void handle_file_signals();

}  // namespace megatron
