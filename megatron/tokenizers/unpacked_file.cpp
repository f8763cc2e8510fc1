#include "megatron/tokenizers/unpacked_file.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/tokenizers/zstd_file.h"

namespace megatron {
namespace {

/// Also reads files that are not compressed, as they are.
class GzipFile final : public UnpackedFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    require<IoError>(file_ != nullptr, "cannot read {}: {}", path, std::strerror(errno));
    gzbuffer(file_.get(), 256 * 1024);
  }

  size_t read(std::span<char> out) override {
    const auto num_read =
        static_cast<size_t>(std::max(gzread(file_.get(), out.data(), static_cast<unsigned>(out.size())), 0));
    if (num_read < out.size()) require_no_error();
    const bool is_packed = is_at_start_ && std::string_view(out.data(), num_read).starts_with(kZstdMagic);
    is_at_start_ = false;
    if (is_packed)
      throw NotSupported(
          fmt::format("{} is compressed by zstd, which is not read from a pipe. Unpack it first: zstd -dc", path_));
    return num_read;
  }

  /// Seeks in a file that is not packed.
  void skip(int64_t num_bytes) override {
    require<IoError>(gzseek(file_.get(), num_bytes, SEEK_CUR) >= 0, "reading {} failed: it cannot be continued at {}",
                     path_, num_bytes);
    is_at_start_ = false;
  }

  int64_t position() const override { return std::max<int64_t>(gzoffset(file_.get()), 0); }  // a pipe has none

 private:
  void require_no_error() {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    require<IoError>(code != Z_ERRNO, "reading {} failed: {}", path_, std::strerror(errno));
    require<DataError>(code == Z_OK, "{}: the gzip data are cut off or damaged ({}). Copy or make the file again",
                       path_, text);
  }

  struct Close {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  bool is_at_start_ = true;
};

constexpr std::string_view kParquetMagic = "PAR1";

/// The first four bytes; nothing of a pipe, as what is read of it is gone.
std::string start_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string start(kZstdMagic.size(), '\0');
  file.read(start.data(), std::ssize(start));
  return start;
}

}  // namespace

void UnpackedFile::skip(int64_t num_bytes) {
  constexpr int64_t kBlockBytes = 1 << 20;
  std::vector<char> block(static_cast<size_t>(std::min(num_bytes, kBlockBytes)));
  while (num_bytes > 0) {
    const size_t num_asked = static_cast<size_t>(std::min(num_bytes, kBlockBytes));
    if (read(std::span(block).first(num_asked)) < num_asked) return;
    num_bytes -= static_cast<int64_t>(num_asked);
  }
}

std::unique_ptr<UnpackedFile> UnpackedFile::open(const std::string& path) {
  require<IoError>(!std::filesystem::is_directory(path), "cannot read {}: it is a directory", path);
  const std::string start = start_of(path);
  if (start == kZstdMagic) return open_zstd(path);
  if (start == kParquetMagic)
    throw NotSupported(fmt::format(
        "{} is a Parquet file, which is not read. Convert it to JSON Lines first, for instance with: duckdb -c \"COPY "
        "(FROM '{}') TO 'corpus.jsonl'\", or with pandas: read_parquet(...).to_json('corpus.jsonl', orient='records', "
        "lines=True)",
        path, path));
  return std::make_unique<GzipFile>(path);
}

}  // namespace megatron
