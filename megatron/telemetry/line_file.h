// Files to which lines are appended.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/file_system.h"

namespace megatron {

/// Opens a file to append lines, and creates it and its directory if they are missing. A last line without an end, as
/// a full disk leaves it, gets one, so that the next line stands alone. @throw IoError
std::unique_ptr<WritableFile> open_line_file(FileSystem& files, const std::string& path);

}  // namespace megatron
