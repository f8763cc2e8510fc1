#include "megatron/training/checkpoint/folder_transfer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <vector>

namespace megatron {
namespace {

constexpr int kTag = 0;
constexpr int64_t kPieceBytes = 64 << 20;

View bytes_of(std::byte* data, int64_t count) { return {data, DType::kUInt8, {count}, {1}}; }

void send_text(const ProcessGroup& group, int peer, std::string text) {
  auto size = static_cast<int64_t>(text.size());
  group.send({&size, DType::kInt64, {1}, {1}}, peer, kTag, {.site = "size of a list of files"}).wait();
  if (size > 0)
    group.send(bytes_of(reinterpret_cast<std::byte*>(text.data()), size), peer, kTag, {.site = "list of files"}).wait();
}

std::string receive_text(const ProcessGroup& group, int peer) {
  int64_t size = 0;
  group.recv({&size, DType::kInt64, {1}, {1}}, peer, kTag, {.site = "size of a list of files"}).wait();
  std::string text(static_cast<size_t>(size), '\0');
  if (size > 0)
    group.recv(bytes_of(reinterpret_cast<std::byte*>(text.data()), size), peer, kTag, {.site = "list of files"}).wait();
  return text;
}

/// Calls `function` with the sizes of the pieces of a file.
template <class Function>
void for_each_piece(int64_t bytes, Function function) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) function(begin, std::min(kPieceBytes, bytes - begin));
}

}  // namespace

void send_folder(const ProcessGroup& group, int peer, const FileSystem& files, const std::string& folder) {
  std::string list;
  std::vector<std::unique_ptr<ReadableFile>> open;
  for (const DirectoryEntry& entry : files.list(folder)) {
    open.push_back(files.open_for_reading(join_path(folder, entry.name)));
    list += fmt::format("{} {}\n", open.back()->size(), entry.name);
  }
  send_text(group, peer, std::move(list));
  std::vector<std::byte> piece;
  for (const auto& file : open)
    for_each_piece(file->size(), [&](int64_t begin, int64_t count) {
      piece.resize(static_cast<size_t>(count));
      file->read(begin, piece);
      group.send(bytes_of(piece.data(), count), peer, kTag, {.site = "file of a checkpoint"}).wait();
    });
}

void receive_folder(const ProcessGroup& group, int peer, FileSystem& files, const std::string& folder) {
  std::istringstream list(receive_text(group, peer));
  int64_t bytes = 0;
  std::vector<std::byte> piece;
  for (std::string name; list >> bytes >> name;) {
    const auto file = files.open_for_writing(join_path(folder, name), WriteMode::kTruncate);
    for_each_piece(bytes, [&](int64_t, int64_t count) {
      piece.resize(static_cast<size_t>(count));
      group.recv(bytes_of(piece.data(), count), peer, kTag, {.site = "file of a checkpoint"}).wait();
      file->append(piece);
    });
    file->sync();
    file->close();
  }
  files.sync_directory(folder);
}

}  // namespace megatron
