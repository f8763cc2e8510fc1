#include "megatron/datasets/indexed_dataset_builder.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

template <class Stored, class In>
bool fits(In token) {
  if constexpr (std::is_floating_point_v<Stored>) {
    return true;
  } else if constexpr (std::is_floating_point_v<In>) {
    return token == std::floor(token) && token >= static_cast<double>(std::numeric_limits<Stored>::min()) &&
           token <= static_cast<double>(std::numeric_limits<Stored>::max()) && token < 0x1p63;
  } else {
    return std::in_range<Stored>(token);
  }
}

/// The path of a file, after leftovers of killed processes there are removed.
const std::string& free_path(const std::string& path) {
  require<IoError>(!std::filesystem::is_directory(path),
                   "{}: cannot be written: it is a directory. Remove it, or choose "
                   "another prefix",
                   path);
  remove_abandoned_files(path);
  return path;
}

void sync_to_disk(bool is_written, const TemporaryFile& file) {
  require<IoError>(is_written && ::fdatasync(file.descriptor()) == 0, "{}: writing failed: {}. Is the disk full?",
                   file.name(), std::generic_category().message(errno));
}

void cut_to_saved_size(const std::string& path, int64_t size) {
  const auto found = static_cast<int64_t>(std::filesystem::file_size(path));
  require<DataError>(found >= size, "{}: has {} bytes, but {} were saved", path, found, size);
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size));
}

void close(std::ofstream& file, const std::string& path) {
  file.close();
  require<IoError>(!file.fail(), "{}: writing failed: {}. Is the disk full?", path,
                   std::generic_category().message(errno));
}

}  // namespace

IndexedDatasetBuilder::IndexedDatasetBuilder(const std::string& prefix, const Options& options)
    : prefix_(prefix),
      options_(options),
      temporary_bin_(options.saved ? TemporaryFile(prefix + ".bin", options.saved->bin)
                                   : TemporaryFile(free_path(prefix + ".bin"))) {
  require(size_of(options.token_type) != 0, "token type code {} is unknown", static_cast<int>(options.token_type));
  if (options.saved) {
    temporary_bin_.set_kept(true);
    restore(*options.saved);
    free_path(prefix + ".bin");
  }
  free_path(prefix + ".idx");
  bin_.open(temporary_bin_.name(), std::ios::binary | std::ios::app);
  require<IoError>(bin_.is_open(), "{}.bin: cannot be written: {}", prefix, std::generic_category().message(errno));
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() = default;

void IndexedDatasetBuilder::write_bytes(std::span<const std::byte> bytes) {
  require(!finalized_, "{}: nothing can be added after finalize()", prefix_);
  bin_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require<IoError>(bin_.good(), "{}.bin: writing failed: {}. Is the disk full?", prefix_,
                   std::generic_category().message(errno));
}

template <class In>
void IndexedDatasetBuilder::append_tokens(std::span<const In> tokens) {
  dispatch_token_type(options_.token_type, [&]<class Stored>() {
    buffer_.resize(tokens.size() * sizeof(Stored));
    for (size_t i = 0; i < tokens.size(); ++i) {
      require<DataError>(fits<Stored>(tokens[i]),
                         "{}: token {} at position {} does not fit the token type {}. Choose the type from the "
                         "tokenizer's vocabulary size.",
                         prefix_, tokens[i], i, name_of(options_.token_type));
      const auto stored = static_cast<Stored>(tokens[i]);
      std::memcpy(buffer_.data() + i * sizeof(Stored), &stored, sizeof(Stored));
    }
  });
  write_bytes(buffer_);
}

void IndexedDatasetBuilder::push_sequence(size_t length, int8_t mode) {
  require<DataError>(length <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                     "{}: a sequence of {} tokens is too long; lengths are stored in 32 bits. Split the document.",
                     prefix_, length);
  lengths_.push_back(static_cast<int32_t>(length));
  if (options_.multimodal) modes_.push_back(mode);
}

void IndexedDatasetBuilder::add_item(std::span<const int64_t> tokens, int8_t mode) {
  append_tokens(tokens);
  push_sequence(tokens.size(), mode);
}

void IndexedDatasetBuilder::add_item(std::span<const double> tokens, int8_t mode) {
  append_tokens(tokens);
  push_sequence(tokens.size(), mode);
}

void IndexedDatasetBuilder::end_document() { document_indices_.push_back(num_sequences()); }

template <class In>
void IndexedDatasetBuilder::append_document(std::span<const In> tokens, std::span<const int32_t> lengths,
                                            std::span<const int8_t> modes) {
  int64_t total = 0;
  for (int32_t length : lengths) {
    require<DataError>(length >= 0, "{}: a sequence of {} tokens was given", prefix_, length);
    total += length;
  }
  require<DataError>(total == static_cast<int64_t>(tokens.size()),
                     "{}: the lengths of a document's sequences add up to {}, but it has {} tokens", prefix_, total,
                     tokens.size());
  require<DataError>(modes.empty() || modes.size() == lengths.size(), "{}: {} modes were given for {} sequences",
                     prefix_, modes.size(), lengths.size());
  append_tokens(tokens);
  for (size_t i = 0; i < lengths.size(); ++i) {
    push_sequence(static_cast<size_t>(lengths[i]), modes.empty() ? int8_t{0} : modes[i]);
  }
  end_document();
}

void IndexedDatasetBuilder::add_document(std::span<const int64_t> tokens, std::span<const int32_t> lengths,
                                         std::span<const int8_t> modes) {
  append_document(tokens, lengths, modes);
}

void IndexedDatasetBuilder::add_document(std::span<const int32_t> tokens, std::span<const int32_t> lengths,
                                         std::span<const int8_t> modes) {
  append_document(tokens, lengths, modes);
}

void IndexedDatasetBuilder::add_document(std::span<const double> tokens, std::span<const int32_t> lengths,
                                         std::span<const int8_t> modes) {
  append_document(tokens, lengths, modes);
}

void IndexedDatasetBuilder::add_index(const std::string& prefix) {
  const IndexedDataset other(prefix, {.access = FileAccess::kMap, .multimodal = options_.multimodal});
  require<DataError>(other.token_type() == options_.token_type,
                     "{}: has tokens of type {}, but {} has {}. Datasets are merged only when the types agree: "
                     "preprocess one of them again with the other's tokenizer.",
                     prefix, name_of(other.token_type()), prefix_, name_of(options_.token_type));
  const int64_t first_sequence = num_sequences();
  for (int64_t i = 0; i < other.num_sequences(); ++i) {
    const auto length = static_cast<size_t>(other.sequence_length(i));
    buffer_.resize(length * size_of(options_.token_type));
    other.read_bytes(i, buffer_);
    write_bytes(buffer_);
    push_sequence(length, options_.multimodal ? other.sequence_mode(i) : int8_t{0});
  }
  for (int64_t d = 1; d <= other.num_documents(); ++d) {
    document_indices_.push_back(first_sequence + other.document_index(d));
  }
}

IndexedDatasetBuilder::SavedState IndexedDatasetBuilder::save() {
  require(!options_.multimodal && !finalized_, "{}: only an open dataset of text can be saved", prefix_);
  bin_.flush();
  sync_to_disk(bin_.good(), temporary_bin_);
  if (!temporary_log_) temporary_log_.emplace(prefix_ + ".idx");
  const std::span<const int32_t> lengths = std::span(lengths_).subspan(num_saved_lengths_);
  const std::span<const int64_t> documents = std::span(document_indices_).subspan(num_saved_documents_);
  const std::array<uint64_t, 2> counts = {lengths.size(), documents.size()};
  std::ofstream log(temporary_log_->name(), std::ios::binary | std::ios::app);
  const std::array<std::span<const std::byte>, 3> parts = {std::as_bytes(std::span(counts)), std::as_bytes(lengths),
                                                           std::as_bytes(documents)};
  for (const std::span<const std::byte> part : parts) {
    log.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
    saved_.log_bytes += std::ssize(part);
  }
  log.close();
  sync_to_disk(!log.fail(), *temporary_log_);
  num_saved_lengths_ = lengths_.size();
  num_saved_documents_ = document_indices_.size();
  temporary_bin_.set_kept(true);
  temporary_log_->set_kept(true);
  saved_.bin = temporary_bin_.name();
  saved_.log = temporary_log_->name();
  saved_.bin_bytes = static_cast<int64_t>(std::filesystem::file_size(saved_.bin));
  return saved_;
}

/// Cuts off the data that were written after the state was saved.
void IndexedDatasetBuilder::restore(const SavedState& saved) {
  temporary_log_.emplace(prefix_ + ".idx", saved.log);
  temporary_log_->set_kept(true);
  cut_to_saved_size(saved.bin, saved.bin_bytes);
  cut_to_saved_size(saved.log, saved.log_bytes);
  std::ifstream log(saved.log, std::ios::binary);
  const auto read = [&log](void* to, size_t size) {
    log.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
  };
  for (int64_t num_read = 0; num_read < saved.log_bytes;) {
    std::array<uint64_t, 2> counts{};
    read(counts.data(), sizeof(counts));
    const auto rest = static_cast<uint64_t>(saved.log_bytes - num_read);
    require<DataError>(log.good() && counts[0] <= rest / 4 && counts[1] <= rest / 8, "{}: the file is damaged",
                       saved.log);
    lengths_.resize(lengths_.size() + counts[0]);
    document_indices_.resize(document_indices_.size() + counts[1]);
    read(lengths_.data() + lengths_.size() - counts[0], counts[0] * 4);
    read(document_indices_.data() + document_indices_.size() - counts[1], counts[1] * 8);
    require<DataError>(log.good(), "{}: the file is damaged", saved.log);
    num_read += static_cast<int64_t>(sizeof(counts) + counts[0] * 4 + counts[1] * 8);
  }
  const int64_t num_tokens = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
  require<DataError>(num_tokens * static_cast<int64_t>(size_of(options_.token_type)) == saved.bin_bytes,
                     "{}: {} tokens are listed in {}, which do not fit its {} bytes", saved.bin, num_tokens, saved.log,
                     saved.bin_bytes);
  saved_ = saved;
  num_saved_lengths_ = lengths_.size();
  num_saved_documents_ = document_indices_.size();
}

void IndexedDatasetBuilder::complete_files() {
  require(!std::exchange(finalized_, true), "{}: finalize() was called twice", prefix_);
  close(bin_, prefix_ + ".bin");
  write_index();
}

/// If the process is killed between the two steps, an index of earlier data must not remain beside the new tokens.
void IndexedDatasetBuilder::remove_index() const {
  std::error_code ignored;
  std::filesystem::remove(prefix_ + ".idx", ignored);
}

void IndexedDatasetBuilder::finalize() {
  complete_files();
  remove_index();
  temporary_bin_.rename();
  temporary_idx_->rename();
  if (temporary_log_) temporary_log_->set_kept(false);
}

void IndexedDatasetBuilder::finalize_together(std::span<const std::unique_ptr<IndexedDatasetBuilder>> builders) {
  for (const auto& builder : builders) builder->complete_files();
  for (const auto& builder : builders) builder->remove_index();
  for (const auto& builder : builders) builder->temporary_bin_.rename();
  try {
    for (const auto& builder : builders) builder->temporary_idx_->rename();
  } catch (const IoError&) {
    for (const auto& builder : builders) builder->remove_index();
    throw;
  }
  for (const auto& builder : builders)
    if (builder->temporary_log_) builder->temporary_log_->set_kept(false);
}

void IndexedDatasetBuilder::write_index() {
  std::array<std::byte, kIndexHeaderBytes> header{};
  const uint64_t num_sequences = lengths_.size(), num_document_indices = document_indices_.size();
  std::memcpy(header.data(), kIndexMagic.data(), kIndexMagic.size());
  std::memcpy(header.data() + 9, &kIndexVersion, 8);
  header[17] = static_cast<std::byte>(options_.token_type);
  std::memcpy(header.data() + 18, &num_sequences, 8);
  std::memcpy(header.data() + 26, &num_document_indices, 8);

  std::vector<int64_t> pointers(lengths_.size());
  std::transform_exclusive_scan(
      lengths_.begin(), lengths_.end(), pointers.begin(), int64_t{0}, std::plus<>{},
      [size = static_cast<int64_t>(size_of(options_.token_type))](int32_t length) { return length * size; });
  const std::array<std::span<const std::byte>, 5> parts = {
      header, std::as_bytes(std::span(lengths_)), std::as_bytes(std::span(pointers)),
      std::as_bytes(std::span(document_indices_)), std::as_bytes(std::span(modes_))};
  const std::string path = prefix_ + ".idx";
  temporary_idx_.emplace(path);
  std::ofstream file(temporary_idx_->name(), std::ios::binary);
  for (const std::span<const std::byte> part : parts)
    file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  close(file, path);
}

}  // namespace megatron
