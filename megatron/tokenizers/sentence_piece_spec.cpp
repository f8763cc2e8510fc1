#include "megatron/tokenizers/sentence_piece_spec.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A field of a serialized message: a number, or bytes, which may be another message or a float.
/// Source: protobuf.dev/programming-guides/encoding.
struct WireField {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

uint64_t take_varint(std::string_view& message) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    require<DataError>(!message.empty(), "the SentencePiece model is cut off");
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

std::string_view take_bytes(std::string_view& message, uint64_t size) {
  require<DataError>(size <= message.size(), "the SentencePiece model is cut off");
  const std::string_view bytes = message.substr(0, size);
  message.remove_prefix(size);
  return bytes;
}

void for_each_field(std::string_view message, const std::function<void(const WireField&)>& visit) {
  enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  while (!message.empty()) {
    const uint64_t tag = take_varint(message), type = tag & 7;
    WireField field{.number = tag >> 3, .bytes = {}};
    require<DataError>(type == kVarint || type == kFixed64 || type == kBytes || type == kFixed32,
                       "the SentencePiece model has a field of wire type {}", type);
    if (type == kVarint) field.value = take_varint(message);
    if (type == kFixed64) take_bytes(message, 8);
    if (type == kBytes) field.bytes = take_bytes(message, take_varint(message));
    if (type == kFixed32) field.bytes = take_bytes(message, 4);
    visit(field);
  }
}

float float_of(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little, "the message's floats are little-endian");
  float value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

SentencePieceSpec::Piece piece_of(std::string_view message) {
  SentencePieceSpec::Piece piece;
  for_each_field(message, [&](const WireField& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = float_of(field.bytes);
    if (field.number == 3) piece.type = static_cast<SentencePieceSpec::Piece::Type>(field.value);
  });
  return piece;
}

}  // namespace

SentencePieceSpec SentencePieceSpec::of(std::string_view model) {
  SentencePieceSpec spec;
  const auto read_trainer = [&](const WireField& field) {
    if (field.number == 3) spec.model_type = static_cast<ModelType>(field.value);
    if (field.number == 24) spec.treat_whitespace_as_suffix = field.value != 0;
    if (field.number == 35) spec.byte_fallback = field.value != 0;
  };
  const auto read_normalizer = [&](const WireField& field) {
    if (field.number == 2) spec.charsmap = field.bytes;
    if (field.number == 3) spec.add_dummy_prefix = field.value != 0;
    if (field.number == 4) spec.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) spec.escape_whitespaces = field.value != 0;
  };
  for_each_field(model, [&](const WireField& field) {
    if (field.number == 1) spec.pieces.push_back(piece_of(field.bytes));
    if (field.number == 2) for_each_field(field.bytes, read_trainer);
    if (field.number == 3) for_each_field(field.bytes, read_normalizer);
  });
  return spec;
}

}  // namespace megatron
