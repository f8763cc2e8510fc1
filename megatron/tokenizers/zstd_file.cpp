#include "megatron/tokenizers/zstd_file.h"

#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int kLargestWindowLog = 31;  // zstd --ultra --long=31

class ZstdFile final : public UnpackedFile {
 public:
  explicit ZstdFile(const std::string& path)
      : path_(path),
        file_(std::fopen(path.c_str(), "rb")),
        stream_(ZSTD_createDStream()),
        packed_(ZSTD_DStreamInSize()) {
    require<IoError>(file_ != nullptr, "cannot read {}: {}", path, std::strerror(errno));
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kLargestWindowLog);
  }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
    while (unpacked.pos < unpacked.size) {
      // A full output may have left bytes in the stream, which come before those of the file.
      if (input_.pos == input_.size && !has_more_ && !fill()) break;
      const size_t before = unpacked.pos;
      const size_t result = ZSTD_decompressStream(stream_.get(), &unpacked, &input_);
      require<DataError>(ZSTD_isError(result) == 0, "{}: the zstd data are damaged ({}). Copy or make the file again",
                         path_, ZSTD_getErrorName(result));
      in_frame_ = result != 0;
      has_more_ = in_frame_ && unpacked.pos == unpacked.size && unpacked.pos > before;
    }
    return unpacked.pos;
  }

  int64_t position() const override { return position_; }

 private:
  /// False at the end of the file.
  bool fill() {
    const size_t num_read = std::fread(packed_.data(), 1, packed_.size(), file_.get());
    require<IoError>(std::ferror(file_.get()) == 0, "reading {} failed: {}", path_, std::strerror(errno));
    require<DataError>(num_read > 0 || !in_frame_, "{}: the zstd data are cut off. Copy or make the file again", path_);
    input_ = {packed_.data(), num_read, 0};
    position_ += static_cast<int64_t>(num_read);
    return num_read > 0;
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<ZSTD_DStream, Close> stream_;
  std::vector<char> packed_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  int64_t position_ = 0;
  bool in_frame_ = false;  // a frame has begun and not ended
  bool has_more_ = false;  // the stream may hold bytes that did not fit into the output
};

}  // namespace

bool has_zstd() { return true; }

std::unique_ptr<UnpackedFile> open_zstd(const std::string& path) { return std::make_unique<ZstdFile>(path); }

}  // namespace megatron
