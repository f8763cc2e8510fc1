// Signals by which the system reports that a file cannot be used.
#pragma once

namespace megatron {

/// Of the whole process, before it starts other threads.
///
/// SIGBUS, where a mapped file became shorter or its disk failed while it was read: the process says which file it was
/// and ends with ExitCode::kData. SIGXFSZ, where a file would grow beyond `ulimit -f`: it is ignored, so that the write
/// fails with an error that names the file.
void handle_file_signals();

}  // namespace megatron
