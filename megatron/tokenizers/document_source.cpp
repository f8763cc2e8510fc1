#include "megatron/tokenizers/document_source.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
constexpr size_t kNone = std::string_view::npos;

void keep_range(const TextRange& range, RawBatch& batch) {
  require_utf8(batch.bytes);
  const auto size = static_cast<double>(count_code_points(batch.bytes));
  const size_t begin = offset_of_code_point(batch.bytes, static_cast<size_t>(size * range.begin));
  const size_t end = offset_of_code_point(batch.bytes, static_cast<size_t>(size * range.end));
  batch.documents = {{begin, end - begin, 1 + std::count(batch.bytes.begin(), batch.bytes.begin() + begin, '\n'),
                      static_cast<int64_t>(end - begin)}};
}
}  // namespace

DocumentSource::DocumentSource(Options options)
    : options_(std::move(options)), num_opened_(options_.start.file), num_documents_(options_.start.document) {
  std::error_code ignored;
  for (size_t i = 0; i < num_opened_; ++i)
    closed_file_bytes_ += static_cast<int64_t>(std::filesystem::file_size(options_.files[i], ignored));
  if (options_.start.offset == 0) return;
  open_next_file();
  file_->skip(options_.start.offset);
  offset_ = options_.start.offset;
  num_lines_ = options_.start.line;
}

std::optional<RawBatch> DocumentSource::next() {
  while (num_documents_ < options_.max_documents) {
    if (!file_) {
      if (num_opened_ == options_.files.size()) return std::nullopt;
      open_next_file();
    }
    RawBatch batch{.file = options_.files[num_opened_ - 1], .bytes = read_block(), .documents = {}};
    offset_ += std::ssize(batch.bytes);
    batch.bytes.reserve(batch.bytes.size() + RawBatch::kPaddingBytes);
    add_documents(batch);
    batch.end = position();
    if (!batch.documents.empty()) return batch;
  }
  return std::nullopt;
}

void DocumentSource::open_next_file() {
  file_ = UnpackedFile::open(options_.files[num_opened_++]);
  num_lines_ = 0;
  offset_ = 0;
}

/// Behind the documents that have been taken.
DocumentPosition DocumentSource::position() const {
  if (!file_) return {num_opened_, 0, 0, num_documents_};
  return {num_opened_ - 1, offset_, num_lines_, num_documents_};
}

void DocumentSource::close_file() {
  closed_file_bytes_ += file_->position();
  file_.reset();
}

/// Whole documents: what was left over, and at least batch_bytes of the file unless it ends. Closes the file at its
/// end.
std::string DocumentSource::read_block() {
  std::string bytes = std::move(rest_);
  rest_.clear();
  while (true) {
    const size_t old_size = bytes.size();
    bytes.resize(old_size + options_.batch_bytes);
    bytes.resize(old_size + file_->read(std::span(bytes).subspan(old_size)));
    if (bytes.size() < old_size + options_.batch_bytes) {
      close_file();
      return bytes;
    }
    if (const size_t end = end_of_documents(bytes, old_size); end > 0) {
      rest_ = bytes.substr(end);
      bytes.resize(end);
      return bytes;
    }
  }
}

/// Returns the end of the last document that is certainly whole, or 0. The first `searched` bytes have no end.
size_t DocumentSource::end_of_documents(std::string_view bytes, size_t searched) const {
  if (options_.format == DocumentFormat::kWholeFile) return 0;
  const std::string_view separator = options_.format == DocumentFormat::kLines ? "\n" : "\n\n";
  const size_t from = searched - std::min(searched, separator.size() - 1);
  const size_t last = bytes.substr(from).rfind(separator);
  return last == kNone ? 0 : from + last + separator.size();
}

void DocumentSource::add_documents(RawBatch& batch) {
  const std::string_view bytes = batch.bytes;
  const bool part = options_.range.begin > 0 || options_.range.end < 1;
  if (options_.format == DocumentFormat::kWholeFile) {
    add(batch, 0, bytes.size(), bytes.size());
    if (part && !batch.documents.empty()) keep_range(options_.range, batch);
    return;
  }
  const bool lines = options_.format == DocumentFormat::kLines;
  for (size_t begin = 0; begin < bytes.size();) {
    if (!lines && bytes[begin] == '\n') {
      ++num_lines_, ++begin;
      continue;
    }
    const size_t separator = bytes.find(lines ? "\n" : "\n\n", begin);
    const size_t end = separator == kNone ? bytes.size() : separator + (lines ? 0 : 1);
    const size_t next = std::min(end + 1, bytes.size());
    add(batch, begin, end, next);
    num_lines_ += lines ? 1 : std::count(bytes.begin() + begin, bytes.begin() + next, '\n');
    begin = next;
  }
}

/// Document [begin, end) of a batch, with the next one starting at `next`.
void DocumentSource::add(RawBatch& batch, size_t begin, size_t end, size_t next) {
  if (num_documents_ >= options_.max_documents || num_documents_++ % options_.divisor != options_.remainder) return;
  batch.documents.push_back({begin, end - begin, num_lines_ + 1, static_cast<int64_t>(next - begin)});
}

}  // namespace megatron
