// Files that are opened for reading must be regular ones.
#pragma once

#include <string>

namespace megatron {

/// Returns why `path` cannot be read as a regular file, as the end of an error: "Is a directory", "It is a FIFO, ...".
/// Opening a FIFO for reading waits until another program opens it for writing, for ever if none does; a socket or a
/// device has no size. Empty if the file is regular, or if it cannot be inspected, which opening it reports.
std::string reason_not_regular(const std::string& path);

}  // namespace megatron
