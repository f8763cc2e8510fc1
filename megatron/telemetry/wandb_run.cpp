#include "megatron/telemetry/wandb_run.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>

#include "megatron/telemetry/protobuf_writer.h"

namespace megatron {
namespace {

// Numbers of fields in wandb_internal.proto.
namespace record {
constexpr int kNum = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
}
constexpr int kItems = 1, kStep = 2;      // HistoryRecord
constexpr int kUpdate = 1;                // ConfigRecord, SummaryRecord
constexpr int kKey = 1, kValueJson = 16;  // of their items
constexpr int kVersionInfo = 1, kProducer = 1, kMinConsumer = 2;
constexpr std::string_view kFormatVersion = "0.16.0";

// LevelDB's log.
constexpr std::int64_t kBlockBytes = 32768;
constexpr std::int64_t kFragmentHeaderBytes = 7;
constexpr int kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4;
constexpr std::string_view kFileHeader("\x3aW&B\xe1\xbe\x00", 7);

std::string json_of(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return nlohmann::json(value).dump();
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Repeated items of a key and a value.
std::string items_of(int field, const std::map<std::string, std::string>& values) {
  ProtobufWriter items;
  for (const auto& [name, json] : values)
    items.add_bytes(field, ProtobufWriter().add_bytes(kKey, name).add_bytes(kValueJson, json).bytes());
  return items.bytes();
}

/// Eight random characters, as in wandb's client.
std::string id_of(WallTime start, std::int64_t process_id) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  auto number = static_cast<std::uint64_t>(start.time_since_epoch().count()) * 0x9e3779b97f4a7c15 +
                static_cast<std::uint64_t>(process_id);
  std::string id;
  for (int i = 0; i < 8; ++i, number /= kLetters.size()) id += kLetters[number % kLetters.size()];
  return id;
}

/// "20260801_123456".
std::string compact_time(WallTime time) {
  std::string text = date_time_text(time);
  std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
  std::ranges::replace(text, ' ', '_');
  return text;
}

std::string timestamp_of(WallTime time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return ProtobufWriter()
      .add_varint(1, seconds.count())
      .add_varint(2, std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count())
      .bytes();
}

std::string run_record_of(const WandbRunOptions& options, const std::string& id,
                          const std::map<std::string, std::string>& config) {
  std::map<std::string, std::string> json;
  for (const auto& [name, text] : config) json[name] = json_text(text);
  ProtobufWriter run;
  run.add_bytes(1, id);
  if (!options.entity.empty()) run.add_bytes(2, options.entity);
  return run.add_bytes(3, options.project)
      .add_bytes(4, items_of(kUpdate, json))
      .add_bytes(8, options.name)
      .add_bytes(13, options.host)
      .add_bytes(17, timestamp_of(options.start))
      .bytes();
}

}  // namespace

WandbRun::WandbRun(FileSystem& files, const WandbRunOptions& options, const std::map<std::string, std::string>& config)
    : start_(options.start), last_(options.start), exceptions_at_start_(std::uncaught_exceptions()) {
  const std::string id = id_of(options.start, options.process_id);
  const std::string folder =
      fmt::format("{}/wandb/offline-run-{}-{}", options.directory, compact_time(options.start), id);
  files.create_directories(folder + "/files");
  path_ = fmt::format("{}/run-{}.wandb", folder, id);
  file_ = files.open_for_writing(path_, WriteMode::kTruncate);
  file_->append(std::as_bytes(std::span(kFileHeader)));
  file_bytes_ = std::ssize(kFileHeader);
  const std::string versions =
      ProtobufWriter().add_bytes(kProducer, kFormatVersion).add_bytes(kMinConsumer, kFormatVersion).bytes();
  write_record(
      ProtobufWriter().add_bytes(record::kHeader, ProtobufWriter().add_bytes(kVersionInfo, versions).bytes()).bytes());
  write_record(ProtobufWriter().add_bytes(record::kRun, run_record_of(options, id, config)).bytes());
}

WandbRun::~WandbRun() try {
  write_end(std::uncaught_exceptions() > exceptions_at_start_ ? 1 : 0);
} catch (const std::exception&) {  // the curves written so far can still be uploaded
}

void WandbRun::log(WallTime now, std::int64_t step, std::span<const NamedValue> values) {
  if (step != step_) write_row();
  step_ = step;
  last_ = now;
  for (const NamedValue& value : values) row_[value.name] = json_of(value.value);
}

void WandbRun::write_row() {
  if (row_.empty()) return;
  row_["_step"] = std::to_string(step_);
  row_["_timestamp"] = json_of(unix_seconds(last_));
  row_["_runtime"] = json_of(unix_seconds(last_) - unix_seconds(start_));
  const std::string step = ProtobufWriter().add_varint(1, step_).bytes();
  const std::string history = items_of(kItems, row_) + ProtobufWriter().add_bytes(kStep, step).bytes();
  for (auto& [name, json] : row_) latest_[name] = std::move(json);
  row_.clear();
  write_record(ProtobufWriter().add_bytes(record::kHistory, history).bytes());
}

void WandbRun::write_end(int exit_code) {
  write_row();
  write_record(ProtobufWriter().add_bytes(record::kSummary, items_of(kUpdate, latest_)).bytes());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(last_ - start_).count();
  write_record(ProtobufWriter()
                   .add_bytes(record::kExit, ProtobufWriter().add_varint(1, exit_code).add_varint(2, seconds).bytes())
                   .bytes());
  file_->close();
}

/// @param record_fields  fields of a Record; the record's number is added
void WandbRun::write_record(std::string_view record_fields) {
  std::string left = ProtobufWriter().add_varint(record::kNum, num_records_++).bytes();
  left += record_fields;
  for (bool is_first = true, is_last = false; !is_last; is_first = false) {
    std::int64_t room = kBlockBytes - file_bytes_ % kBlockBytes;
    if (room < kFragmentHeaderBytes) {
      const std::string padding(static_cast<size_t>(room), '\0');
      file_->append(std::as_bytes(std::span(padding)));
      file_bytes_ += room;
      room = kBlockBytes;
    }
    const auto taken = static_cast<size_t>(std::min(std::ssize(left), room - kFragmentHeaderBytes));
    is_last = taken == left.size();
    write_fragment(is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle),
                   std::string_view(left).substr(0, taken));
    left.erase(0, taken);
  }
}

void WandbRun::write_fragment(int type, std::string_view data) {
  const auto type_byte = static_cast<unsigned char>(type);
  uLong sum = crc32(0, &type_byte, 1);
  sum = crc32(sum, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
  std::string fragment = little_endian_bytes(static_cast<std::uint32_t>(sum));
  fragment += static_cast<char>(data.size() % 256);
  fragment += static_cast<char>(data.size() / 256);
  fragment += static_cast<char>(type);
  fragment += data;
  file_->append(std::as_bytes(std::span(fragment)));
  file_bytes_ += std::ssize(fragment);
}

}  // namespace megatron
