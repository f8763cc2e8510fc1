#include "megatron/datasets/indexed_dataset.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/base/regular_file.h"

namespace megatron {
namespace {

constexpr const char* kDamaged = "The file is damaged or truncated: copy it again or preprocess the data again.";
constexpr const char* kNotAPair =
    "One of the two files is damaged, truncated or belongs to other data: copy both again or preprocess the data "
    "again.";

template <class T>
T load_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

constexpr const char* kIndexSuffix = ".idx";
constexpr const char* kTokensSuffix = ".bin";

std::string path_of_part(const std::string& prefix, const char* suffix) {
  require<DataError>(
      !prefix.starts_with("s3://") && !prefix.starts_with("msc://"),
      "{}: objects are not read. Copy the .idx and .bin files to a disk first, for instance with: aws s3 "
      "cp",
      prefix);
  std::string path = prefix + suffix;
  std::error_code refusal;
  const bool is_file = std::filesystem::is_regular_file(path, refusal);
  const bool is_absent = refusal == std::errc::no_such_file_or_directory || refusal == std::errc::not_a_directory;
  require<DataError>(!refusal || is_absent, "{}: {}. Give a path that this user may read.", path, refusal.message());
  const std::string kind = is_file ? "" : reason_not_regular(path);
  require<DataError>(kind.empty(), "{}: {}. Give the path of a dataset's files without suffix.", path, kind);
  require<DataError>(is_file,
                     "{}: no such file. A dataset is a pair of files PREFIX.idx and PREFIX.bin; the prefix \"{}\" was "
                     "given. Give the path without suffix, such as data/my_text_document.",
                     path, prefix);
  return path;
}

/// The last of 0 .. count - 1 for which `condition` holds, which it does up to that one; -1 if it holds for none.
template <class Condition>
int64_t last_where(int64_t count, Condition condition) {
  int64_t begin = 0;
  while (begin < count) {
    const int64_t middle = begin + (count - begin) / 2;
    if (condition(middle))
      begin = middle + 1;
    else
      count = middle;
  }
  return begin - 1;
}

/// A stored token as `Out`. Floating tokens have no exact integer: they are truncated, and out-of-range or
/// not-a-number ones become the nearest end of the range or 0.
template <class Out, class Stored>
Out convert_token(Stored token) {
  if constexpr (std::is_floating_point_v<Stored> && std::is_integral_v<Out>) {
    if (std::isnan(token)) return 0;
    constexpr double kLimit = 0x1p63;
    if (token >= kLimit) return std::numeric_limits<Out>::max();
    if (token < -kLimit) return std::numeric_limits<Out>::min();
  }
  return static_cast<Out>(token);
}

}  // namespace

void require_dataset_files(const std::string& prefix) {
  for (const char* suffix : {kIndexSuffix, kTokensSuffix}) path_of_part(prefix, suffix);
}

IndexedDataset::IndexedDataset(const std::string& prefix, const IndexedDatasetOptions& options)
    : prefix_(prefix),
      index_(path_of_part(prefix, kIndexSuffix), FileAccess::kMap),
      tokens_(path_of_part(prefix, kTokensSuffix), options.access),
      multimodal_(options.multimodal) {
  parse_header();
  check_documents();
  if (!sequences_fill_tokens()) reject_sequences();
  check_sizes();
  num_tokens_ = static_cast<int64_t>(tokens_.size_bytes() / size_of(token_type_));
}

void IndexedDataset::parse_header() {
  const std::string path = index_.path().string();
  const uint64_t size = index_.size_bytes();
  const std::byte* bytes = index_.bytes().data();
  require<DataError>(size >= kIndexHeaderBytes, "{}: has {} bytes, fewer than the header's {}. {}", path, size,
                     kIndexHeaderBytes, kDamaged);
  require<DataError>(std::memcmp(bytes, kIndexMagic.data(), kIndexMagic.size()) == 0,
                     "{}: bad header, cannot read: it does not start with MMIDIDX. It is not an index of Megatron's "
                     "data format; preprocess the data again.",
                     path);
  const auto version = load_at<uint64_t>(bytes + 9);
  require<DataError>(version == kIndexVersion,
                     "{}: bad version, cannot read: version {}, only {} is known. Preprocess the data again.", path,
                     version, kIndexVersion);
  token_type_ = static_cast<TokenType>(load_at<uint8_t>(bytes + 17));
  require<DataError>(size_of(token_type_) != 0, "{}: token type code {} is not one of 1 to 8. {}", path,
                     static_cast<int>(token_type_), kDamaged);

  const auto num_sequences = load_at<uint64_t>(bytes + 18);
  const auto num_document_indices = load_at<uint64_t>(bytes + 26);
  const uint64_t room = size - kIndexHeaderBytes;
  const uint64_t bytes_per_sequence = multimodal_ ? 13 : 12;
  // Each count is compared alone first, so that the sum below cannot overflow.
  const bool fits = num_sequences <= room / bytes_per_sequence && num_document_indices <= room / 8 &&
                    num_sequences * bytes_per_sequence + num_document_indices * 8 <= room;
  require<DataError>(fits, "{}: {} sequences{} and {} document indices need more than its {} bytes. {}", path,
                     num_sequences, multimodal_ ? " with modes" : "", num_document_indices, size, kDamaged);
  require<DataError>(num_document_indices >= 1, "{}: has no document index; there is at least a closing one. {}", path,
                     kDamaged);
  num_sequences_ = static_cast<int64_t>(num_sequences);
  num_document_indices_ = static_cast<int64_t>(num_document_indices);
}

void IndexedDataset::check_sizes() const {
  // Multimodal indices end with modes, one byte a sequence, also when they are opened for their tokens alone.
  const auto arrays = static_cast<uint64_t>(12 * num_sequences_ + 8 * num_document_indices_);
  const uint64_t without_modes = kIndexHeaderBytes + arrays;
  const uint64_t with_modes = without_modes + static_cast<uint64_t>(num_sequences_);
  const uint64_t size = index_.size_bytes();
  require<DataError>(size == with_modes || (!multimodal_ && size == without_modes),
                     "{}: has {} bytes, but {} sequences and {} document indices take {}, or {} with modes. {}",
                     index_.path().string(), size, num_sequences_, num_document_indices_, without_modes, with_modes,
                     kDamaged);
}

/// Says whether every sequence starts where the one before it ends, and the last one ends with the tokens. One pass
/// without branches, which the compiler vectorises: an index may have hundreds of millions of sequences.
bool IndexedDataset::sequences_fill_tokens() const {
  const uint64_t available = tokens_.size_bytes();
  if (num_sequences_ == 0) return available == 0;
  const std::byte* lengths = index_.bytes().data() + kIndexHeaderBytes;
  const std::byte* pointers = lengths + 4 * num_sequences_;
  const int shift = std::countr_zero(size_of(token_type_));
  uint64_t difference = load_at<uint64_t>(pointers);  // bits in which a pointer is not the end before it
  uint64_t sign = 0;                                  // its top bit: a length is negative, or a pointer too large
  const auto end_of = [&](int64_t i) {
    const auto length = static_cast<uint64_t>(int64_t{load_at<int32_t>(lengths + 4 * i)});
    sign |= length;
    return load_at<uint64_t>(pointers + 8 * i) + (length << shift);
  };
  for (int64_t i = 0; i + 1 < num_sequences_; ++i) {
    const auto next = load_at<uint64_t>(pointers + 8 * (i + 1));
    difference |= end_of(i) ^ next;
    sign |= next | (available - next);
  }
  difference |= end_of(num_sequences_ - 1) ^ available;
  return difference == 0 && sign >> 63 == 0;
}

void IndexedDataset::reject_sequences() const {
  const std::string path = index_.path().string(), tokens = tokens_.path().string();
  const uint64_t available = tokens_.size_bytes();
  uint64_t end = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int32_t length = sequence_length(i);
    const int64_t pointer = sequence_pointer(i);
    require<DataError>(length >= 0 && pointer >= 0,
                       "{}: sequence {} has length {} and pointer {}; neither may be negative. {}", path, i, length,
                       pointer, kDamaged);
    const uint64_t begin = static_cast<uint64_t>(pointer), bytes = static_cast<uint64_t>(length) * size_of(token_type_);
    require<DataError>(begin <= available && bytes <= available - begin,
                       "{}: sequence {} takes bytes {} to {} of {}, which has only {}. {}", path, i, begin,
                       begin + bytes, tokens, available, kNotAPair);
    require<DataError>(
        begin == end,
        "{}: sequence {} starts at byte {} of {}, but the one before it ends at byte {} (tokens are {}); "
        "sequences follow each other without gaps. {}",
        path, i, begin, tokens, end, name_of(token_type_), kDamaged);
    end = begin + bytes;
  }
  throw DataError(fmt::format("{}: its {} sequences take {} bytes (tokens are {}), but {} has {}. {}", path,
                              num_sequences_, end, name_of(token_type_), tokens, available, kNotAPair));
}

void IndexedDataset::check_documents() const {
  const std::string path = index_.path().string();
  const int64_t first = document_index(0), last = document_index(num_documents());
  require<DataError>(first == 0 && last == num_sequences_,
                     "{}: document indices run from {} to {}; they must run from 0 to {}, the number of sequences. {}",
                     path, first, last, num_sequences_, kDamaged);
  const std::byte* indices = index_.bytes().data() + kIndexHeaderBytes + 12 * num_sequences_;
  bool in_order = true;
  for (int64_t d = 0; d < num_documents(); ++d)
    in_order &= load_at<int64_t>(indices + 8 * d) <= load_at<int64_t>(indices + 8 * (d + 1));
  for (int64_t d = 0; !in_order && d < num_documents(); ++d) {
    const int64_t begin = document_index(d), end = document_index(d + 1);
    require<DataError>(begin <= end, "{}: document {} starts at sequence {}, the next one before it at {}. {}", path, d,
                       begin, end, kDamaged);
  }
}

int32_t IndexedDataset::sequence_length(int64_t sequence) const {
  return load_at<int32_t>(index_.bytes().data() + kIndexHeaderBytes + 4 * sequence);
}

int64_t IndexedDataset::sequence_pointer(int64_t sequence) const {
  return load_at<int64_t>(index_.bytes().data() + kIndexHeaderBytes + 4 * num_sequences_ + 8 * sequence);
}

int64_t IndexedDataset::document_index(int64_t document) const {
  return load_at<int64_t>(index_.bytes().data() + kIndexHeaderBytes + 12 * num_sequences_ + 8 * document);
}

int64_t IndexedDataset::sequence_at(int64_t byte_offset) const {
  // The last of the sequences that begin there is the one with tokens.
  return last_where(num_sequences_, [&](int64_t i) { return sequence_pointer(i) <= byte_offset; });
}

int64_t IndexedDataset::document_of(int64_t sequence) const {
  // If documents start with the same sequence, all but the last one are empty.
  return last_where(num_documents(), [&](int64_t i) { return document_index(i) <= sequence; });
}

std::string IndexedDataset::place_of(int64_t sequence, int64_t position) const {
  const auto token_size = static_cast<int64_t>(size_of(token_type_));
  const int64_t document = document_of(sequence), byte = sequence_pointer(sequence) + position * token_size;
  const int64_t begin = sequence_pointer(document_index(document));
  return fmt::format("{}{}: byte {}, position {} of document {} (position {} of sequence {})", prefix_, kTokensSuffix,
                     byte, (byte - begin) / token_size, document, position, sequence);
}

int8_t IndexedDataset::sequence_mode(int64_t sequence) const {
  require(multimodal_, "{}: modes were requested, but it was not opened as multimodal", prefix_);
  const int64_t modes_at = 12 * num_sequences_ + 8 * num_document_indices_;
  return load_at<int8_t>(index_.bytes().data() + kIndexHeaderBytes + modes_at + sequence);
}

void IndexedDataset::check_range(int64_t sequence, int64_t offset, size_t count) const {
  require<DataError>(sequence >= 0 && sequence < num_sequences_, "{}: sequence {} was requested; there are {}", prefix_,
                     sequence, num_sequences_);
  const int64_t length = sequence_length(sequence);
  require<DataError>(offset >= 0 && offset <= length && count <= static_cast<uint64_t>(length - offset),
                     "{}: {} tokens at offset {} of sequence {} were requested, which has {}", prefix_, count, offset,
                     sequence, length);
}

template <class Out>
void IndexedDataset::convert(int64_t sequence, int64_t offset, std::span<Out> out) const {
  check_range(sequence, offset, out.size());
  if (out.empty()) return;
  dispatch_token_type(token_type_, [&]<class Stored>() {
    const auto at = static_cast<uint64_t>(sequence_pointer(sequence) + offset * static_cast<int64_t>(sizeof(Stored)));
    const auto copy = [&](const std::byte* from) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = convert_token<Out>(load_at<Stored>(from + i * sizeof(Stored)));
    };
    if (tokens_.access() == FileAccess::kMap) {
      copy(tokens_.bytes().data() + at);
      tokens_.require_bytes_until(at + out.size() * sizeof(Stored));
    } else {
      std::vector<std::byte> buffer(out.size() * sizeof(Stored));
      tokens_.read(at, buffer);
      copy(buffer.data());
    }
  });
}

void IndexedDataset::read(int64_t sequence, int64_t offset, std::span<int64_t> out) const {
  convert(sequence, offset, out);
}

std::vector<int64_t> IndexedDataset::sequence(int64_t sequence) const {
  check_range(sequence, 0, 0);
  std::vector<int64_t> tokens(static_cast<size_t>(sequence_length(sequence)));
  convert<int64_t>(sequence, 0, tokens);
  return tokens;
}

std::vector<double> IndexedDataset::sequence_values(int64_t sequence) const {
  check_range(sequence, 0, 0);
  std::vector<double> tokens(static_cast<size_t>(sequence_length(sequence)));
  convert<double>(sequence, 0, tokens);
  return tokens;
}

void IndexedDataset::read_bytes(int64_t sequence, std::span<std::byte> out) const {
  check_range(sequence, 0, out.size() / size_of(token_type_));
  tokens_.read(static_cast<uint64_t>(sequence_pointer(sequence)), out);
}

}  // namespace megatron
