// Sends a folder of files from one rank to another.
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/comm/process_group.h"

namespace megatron {

/// Sends the files of `folder`, which has no folders in it, to a rank of the group that calls receive_folder().
void send_folder(const ProcessGroup& group, int peer, const FileSystem& files, const std::string& folder);

/// Writes the files that `peer` sends into `folder`, which exists, and syncs them.
void receive_folder(const ProcessGroup& group, int peer, FileSystem& files, const std::string& folder);

}  // namespace megatron
