#include "megatron/base/regular_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace megatron {
namespace {

std::string special(const std::string& kind) { return "It is " + kind + ", not a regular file"; }

}  // namespace

std::string reason_not_regular(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return "";
  if (S_ISDIR(status.st_mode)) return std::strerror(EISDIR);
  if (S_ISFIFO(status.st_mode)) return special("a FIFO (named pipe)");
  if (S_ISSOCK(status.st_mode)) return special("a socket");
  return special(S_ISCHR(status.st_mode) ? "a character device" : "a block device");
}

}  // namespace megatron
