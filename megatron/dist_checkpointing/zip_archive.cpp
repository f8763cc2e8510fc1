#include "megatron/dist_checkpointing/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDataDescriptor = 0x08074b50, kDirectoryHeader = 0x02014b50,
                   kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr int64_t kLocalHeaderBytes = 30, kDirectoryHeaderBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                  kEnd64LocatorBytes = 20;
constexpr uint16_t kUtf8Flag = 0x800;
constexpr uint16_t kDescriptorFlag = 0x8;  // sizes and checksum follow the payload
constexpr uint16_t kEncryptedFlag = 0x1;   // and bit 13, masked directory values, which only comes with it
constexpr uint16_t kZip64Field = 1, kPaddingField = 0x4246;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the value is in the zip64 field
constexpr uint16_t kIn64Short = 0xFFFF;
constexpr size_t kFlushBytes = 64 << 10;

/// Little-endian fields of a record, in order.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T next() {
    const std::string_view raw = skip(sizeof(T));
    T value = 0;
    for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>((uint64_t{value} << 8) | static_cast<uint8_t>(raw[i]));
    return value;
  }
  std::string_view skip(size_t count) {
    require<CheckpointError>(count <= bytes_.size(), "a record is cut");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

class Record {
 public:
  template <class T>
  Record& add(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    return *this;
  }
  Record& add_bytes(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint32_t clamped(int64_t value) { return value >= kIn64 ? kIn64 : static_cast<uint32_t>(value); }
uint16_t clamped_short(int64_t value) { return value >= kIn64Short ? kIn64Short : static_cast<uint16_t>(value); }
int64_t to_signed(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
}

/// Reads the zip64 field of an entry of the directory: values that do not fit into 32 bits, in this order.
void read_zip64_field(std::string_view extra, uint64_t& size, uint64_t& stored_size, uint64_t& offset) {
  for (Fields fields(extra); !fields.empty();) {
    const auto id = fields.next<uint16_t>();
    Fields content(fields.skip(fields.next<uint16_t>()));
    if (id != kZip64Field) continue;
    for (uint64_t* value : {&size, &stored_size, &offset})
      if (*value == kIn64) *value = content.next<uint64_t>();
  }
}

uint16_t flags_of(const ZipEntry& entry) { return entry.bytes == 0 ? kUtf8Flag : kUtf8Flag | kDescriptorFlag; }

std::string local_header(const ZipEntry& entry, int64_t position) {
  Record zip64;
  if (entry.bytes >= kIn64) zip64.add(kZip64Field).add(uint16_t{16}).add(entry.bytes).add(entry.bytes);
  const int64_t before_padding = position + kLocalHeaderBytes + static_cast<int64_t>(entry.name.size()) +
                                 static_cast<int64_t>(zip64.bytes().size()) + 4;
  const auto padding = static_cast<uint16_t>(-before_padding & (ZipWriter::kAlignmentBytes - 1));
  const uint32_t size = entry.bytes >= kIn64 ? kIn64 : 0;  // 0: the data descriptor has it
  Record header;
  header.add(kLocalHeader).add(uint16_t{0}).add(flags_of(entry)).add(uint16_t{0}).add(uint32_t{0}).add(uint32_t{0});
  header.add(size).add(size).add(static_cast<uint16_t>(entry.name.size()));
  header.add(static_cast<uint16_t>(zip64.bytes().size() + 4 + padding)).add_bytes(entry.name);
  header.add_bytes(zip64.bytes()).add(kPaddingField).add(padding).add_bytes(std::string(padding, 'Z'));
  return header.bytes();
}

std::string data_descriptor(const ZipEntry& entry) {
  Record record;
  record.add(kDataDescriptor).add(entry.crc);
  if (entry.bytes >= kIn64) return record.add(entry.bytes).add(entry.bytes).bytes();
  return record.add(clamped(entry.bytes)).add(clamped(entry.bytes)).bytes();
}

std::string directory_header(const ZipEntry& entry) {
  Record values;
  if (entry.bytes >= kIn64) values.add(entry.bytes).add(entry.bytes);
  if (entry.header_offset >= kIn64) values.add(entry.header_offset);
  Record zip64;
  if (!values.bytes().empty())
    zip64.add(kZip64Field).add(static_cast<uint16_t>(values.bytes().size())).add_bytes(values.bytes());
  Record header;
  header.add(kDirectoryHeader).add(uint16_t{0}).add(uint16_t{0}).add(flags_of(entry)).add(uint16_t{0}).add(uint32_t{0});
  header.add(entry.crc).add(clamped(entry.bytes)).add(clamped(entry.bytes));
  header.add(static_cast<uint16_t>(entry.name.size())).add(static_cast<uint16_t>(zip64.bytes().size()));
  header.add(uint16_t{0}).add(uint16_t{0}).add(uint16_t{0}).add(uint32_t{0}).add(clamped(entry.header_offset));
  return header.add_bytes(entry.name).add_bytes(zip64.bytes()).bytes();
}

std::string end_records(int64_t num_entries, int64_t directory_offset, int64_t directory_bytes) {
  constexpr uint16_t kMadeBy = 0x031e, kNeeded = 45;  // Unix, 3.0; 4.5 is the version that brought zip64
  Record record;
  record.add(kEnd64).add(kEnd64Bytes - 12).add(kMadeBy).add(kNeeded).add(uint32_t{0}).add(uint32_t{0});
  record.add(num_entries).add(num_entries).add(directory_bytes).add(directory_offset);
  record.add(kEnd64Locator).add(uint32_t{0}).add(directory_offset + directory_bytes).add(uint32_t{1});
  record.add(kEnd).add(uint16_t{0}).add(uint16_t{0}).add(clamped_short(num_entries)).add(clamped_short(num_entries));
  record.add(clamped(directory_bytes)).add(clamped(directory_offset)).add(uint16_t{0});
  return record.bytes();
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  return static_cast<uint32_t>(::crc32_z(previous, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

ZipReader::ZipReader(const ReadableFile& file, std::string source) : file_(file), source_(std::move(source)) {
  const Directory directory = find_directory();
  try {
    parse_directory(directory);
  } catch (const CheckpointError& error) {
    fail(error.what());
  }
}

void ZipReader::fail(std::string_view problem) const {
  throw CheckpointError(fmt::format(
      "[torch file] {} is damaged or cut short: {}. Restore it or load another checkpoint.", source_, problem));
}

std::string ZipReader::read_at(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || bytes > file_.size() || offset > file_.size() - bytes)
    fail(fmt::format("{} bytes at {} are not within its {}", bytes, offset, file_.size()));
  std::string content(static_cast<size_t>(bytes), '\0');
  file_.read(offset, std::as_writable_bytes(std::span(content)));
  return content;
}

ZipReader::Directory ZipReader::find_directory() const {
  const int64_t end_offset = file_.size() - kEndBytes;
  const std::string end_bytes = read_at(end_offset, kEndBytes);
  Fields end(end_bytes);
  if (end.next<uint32_t>() != kEnd) fail("it does not end like a zip archive");
  end.skip(4);
  const auto num_entries = end.next<uint16_t>();
  end.skip(2);
  const auto directory_bytes = end.next<uint32_t>(), directory_offset = end.next<uint32_t>();
  if (end.next<uint16_t>() != 0) fail("the archive has a comment");
  Directory directory{directory_offset, directory_bytes, num_entries};

  const int64_t locator_offset = end_offset - kEnd64LocatorBytes;
  int64_t directory_end = end_offset;
  if (locator_offset >= 0) {
    const std::string locator_bytes = read_at(locator_offset, kEnd64LocatorBytes);
    Fields locator(locator_bytes);
    if (locator.next<uint32_t>() == kEnd64Locator) {
      locator.skip(4);
      directory_end = to_signed(locator.next<uint64_t>());
      const std::string end64_bytes = read_at(directory_end, kEnd64Bytes);
      Fields end64(end64_bytes);
      if (end64.next<uint32_t>() != kEnd64) fail("the zip64 end record is missing");
      end64.skip(28);
      directory.num_entries = to_signed(end64.next<uint64_t>());
      directory.bytes = to_signed(end64.next<uint64_t>());
      directory.offset = to_signed(end64.next<uint64_t>());
    }
  }
  if (directory.bytes > directory_end || directory.offset != directory_end - directory.bytes)
    fail("the directory of its entries is not where it should be");
  return directory;
}

void ZipReader::parse_directory(const Directory& directory) {
  const std::string bytes = read_at(directory.offset, directory.bytes);
  require<CheckpointError>(directory.num_entries <= directory.bytes / kDirectoryHeaderBytes, "{} entries in {} bytes",
                           directory.num_entries, directory.bytes);
  Fields fields(bytes);
  for (int64_t i = 0; i < directory.num_entries; ++i) {
    require<CheckpointError>(fields.next<uint32_t>() == kDirectoryHeader, "entry {} of the directory is damaged", i);
    fields.skip(4);
    const auto flags = fields.next<uint16_t>(), method = fields.next<uint16_t>();
    fields.skip(4);
    ZipEntry entry;
    entry.crc = fields.next<uint32_t>();
    uint64_t stored_size = fields.next<uint32_t>(), size = fields.next<uint32_t>();
    const auto name_bytes = fields.next<uint16_t>(), extra_bytes = fields.next<uint16_t>();
    const auto comment_bytes = fields.next<uint16_t>();
    fields.skip(8);
    uint64_t offset = fields.next<uint32_t>();
    entry.name = fields.skip(name_bytes);
    read_zip64_field(fields.skip(extra_bytes), size, stored_size, offset);
    fields.skip(comment_bytes);
    require<CheckpointError>(method == 0 && size == stored_size && !(flags & kEncryptedFlag),
                             "entry {} is compressed or encrypted, which torch.save never does", entry.name);
    entry.bytes = to_signed(size);
    entry.header_offset = to_signed(offset);
    require<CheckpointError>(entry.bytes <= directory.offset && entry.header_offset <= directory.offset - entry.bytes,
                             "entry {} reaches beyond the end", entry.name);
    entries_.push_back(std::move(entry));
  }
  require<CheckpointError>(fields.empty(), "the directory is longer than its {} entries", directory.num_entries);
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &ZipEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

int64_t ZipReader::payload_offset(const ZipEntry& entry) const {
  const auto name_bytes = static_cast<int64_t>(entry.name.size());
  const std::string bytes = read_at(entry.header_offset, kLocalHeaderBytes + name_bytes);
  Fields fields(bytes);
  if (fields.next<uint32_t>() != kLocalHeader) fail(fmt::format("entry {} has no header", entry.name));
  fields.skip(22);
  const auto stored_name_bytes = fields.next<uint16_t>(), extra_bytes = fields.next<uint16_t>();
  if (stored_name_bytes != name_bytes || fields.skip(entry.name.size()) != entry.name)
    fail(fmt::format("entry {} has another name in its header", entry.name));
  const int64_t offset = entry.header_offset + kLocalHeaderBytes + name_bytes + extra_bytes;
  if (offset > file_.size() - entry.bytes) fail(fmt::format("entry {} reaches beyond the end", entry.name));
  return offset;
}

std::string ZipReader::read(const ZipEntry& entry) const {
  std::string content = read_at(payload_offset(entry), entry.bytes);
  require_checksum(entry, crc32(std::as_bytes(std::span(content)), 0));
  return content;
}

void ZipReader::require_checksum(const ZipEntry& entry, uint32_t crc) const {
  if (crc != entry.crc)
    fail(fmt::format("entry {} has checksum {:08x}, {:08x} was recorded", entry.name, crc, entry.crc));
}

void ZipWriter::put(std::string_view bytes) {
  pending_ += bytes;
  position_ += static_cast<int64_t>(bytes.size());
  if (pending_.size() >= kFlushBytes) flush();
}

void ZipWriter::flush() {
  if (!pending_.empty()) file_.append(std::as_bytes(std::span(pending_)));
  pending_.clear();
}

void ZipWriter::begin(std::string name, int64_t bytes) {
  require(remaining_ == 0, "[zip] entry {} begins within another", name);
  entries_.push_back({.name = std::move(name), .bytes = bytes, .crc = 0, .header_offset = position_});
  remaining_ = bytes;
  put(local_header(entries_.back(), position_));
}

void ZipWriter::append(std::span<const std::byte> bytes) {
  require(static_cast<int64_t>(bytes.size()) <= remaining_, "[zip] entry {} gets more bytes than announced",
          entries_.back().name);
  entries_.back().crc = crc32(bytes, entries_.back().crc);
  remaining_ -= static_cast<int64_t>(bytes.size());
  if (bytes.size() < kFlushBytes) return put({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  flush();
  file_.append(bytes);
  position_ += static_cast<int64_t>(bytes.size());
}

void ZipWriter::end() {
  require(remaining_ == 0, "[zip] entry {} lacks {} bytes", entries_.back().name, remaining_);
  if (entries_.back().bytes > 0) put(data_descriptor(entries_.back()));
}

void ZipWriter::add(std::string name, std::string_view content) {
  begin(std::move(name), static_cast<int64_t>(content.size()));
  append(std::as_bytes(std::span(content)));
  end();
}

int64_t ZipWriter::finish() {
  const int64_t directory_offset = position_;
  for (const ZipEntry& entry : entries_) put(directory_header(entry));
  put(end_records(static_cast<int64_t>(entries_.size()), directory_offset, position_ - directory_offset));
  flush();
  return position_;
}

}  // namespace megatron
