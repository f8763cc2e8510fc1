#include "megatron/telemetry/event_file_writer.h"

#include <fmt/core.h>

#include "megatron/telemetry/crc32c.h"
#include "megatron/telemetry/protobuf_writer.h"

namespace megatron {
namespace {

// Field numbers of tensorflow/core/util/event.proto and tensorflow/core/framework/{summary,tensor,tensor_shape}.proto.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSourceMetadata = 10;
}
namespace summary_field {
constexpr int kValue = 1;
}
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace tensor_field {
constexpr int kDtype = 1, kShape = 2, kString = 8;
constexpr int kShapeDim = 2, kDimSize = 1;
}  // namespace tensor_field

constexpr std::int64_t kDtypeString = 7;

ProtobufWriter event_at(WallTime now, std::int64_t step) {
  ProtobufWriter event;
  event.add_double(event_field::kWallTime, unix_seconds(now)).add_varint(event_field::kStep, step);
  return event;
}

std::string file_name(const EventFileIdentity& id, WallTime now) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()).count();
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, id.host, id.process_id, id.serial);
}

/// A string tensor of shape [1].
ProtobufWriter string_tensor(std::string_view text) {
  ProtobufWriter dim;
  dim.add_varint(tensor_field::kDimSize, 1);
  ProtobufWriter shape;
  shape.add_bytes(tensor_field::kShapeDim, dim.bytes());
  ProtobufWriter tensor;
  tensor.add_varint(tensor_field::kDtype, kDtypeString)
      .add_bytes(tensor_field::kShape, shape.bytes())
      .add_bytes(tensor_field::kString, text);
  return tensor;
}

/// SummaryMetadata that names the plugin which shows the value.
ProtobufWriter plugin_metadata(std::string_view plugin) {
  constexpr int kPluginName = 1, kPluginData = 1, kDataClass = 4;
  constexpr std::int64_t kDataClassTensor = 2;
  ProtobufWriter data;
  data.add_bytes(kPluginName, plugin);
  ProtobufWriter metadata;
  metadata.add_bytes(kPluginData, data.bytes()).add_varint(kDataClass, kDataClassTensor);
  return metadata;
}

}  // namespace

EventFileWriter::EventFileWriter(FileSystem& files, const std::string& directory, const EventFileIdentity& identity,
                                 WallTime now)
    : path_(join_path(directory, file_name(identity, now))) {
  files.create_directories(directory);
  file_ = files.open_for_writing(path_, WriteMode::kTruncate);
  constexpr int kWriter = 1;
  ProtobufWriter source;
  source.add_bytes(kWriter, "megatron.telemetry");
  ProtobufWriter event;
  event.add_double(event_field::kWallTime, unix_seconds(now))
      .add_bytes(event_field::kFileVersion, "brain.Event:2")
      .add_bytes(event_field::kSourceMetadata, source.bytes());
  write_record(event.bytes());
}

void EventFileWriter::add_scalars(WallTime now, std::int64_t step, std::span<const NamedValue> scalars) {
  if (scalars.empty()) return;
  ProtobufWriter summary;
  for (const NamedValue& scalar : scalars) {
    ProtobufWriter value;
    value.add_bytes(value_field::kTag, scalar.name)
        .add_float(value_field::kSimpleValue, static_cast<float>(scalar.value));
    summary.add_bytes(summary_field::kValue, value.bytes());
  }
  write_record(event_at(now, step).add_bytes(event_field::kSummary, summary.bytes()).bytes());
}

void EventFileWriter::add_text(WallTime now, std::int64_t step, std::string_view tag, std::string_view text) {
  ProtobufWriter value;
  value.add_bytes(value_field::kTag, fmt::format("{}/text_summary", tag))
      .add_bytes(value_field::kTensor, string_tensor(text).bytes())
      .add_bytes(value_field::kMetadata, plugin_metadata("text").bytes());
  ProtobufWriter summary;
  summary.add_bytes(summary_field::kValue, value.bytes());
  write_record(event_at(now, step).add_bytes(event_field::kSummary, summary.bytes()).bytes());
}

void EventFileWriter::write_record(const std::string& event) {
  const std::string length = little_endian_bytes(std::uint64_t{event.size()});
  const std::string record =
      length + little_endian_bytes(masked_crc32c(length)) + event + little_endian_bytes(masked_crc32c(event));
  file_->append(std::as_bytes(std::span(record)));
}

}  // namespace megatron
