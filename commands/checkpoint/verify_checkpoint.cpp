#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/terminal.h"
#include "megatron/base/error.h"
#include "megatron/base/size_text.h"
#include "megatron/dist_checkpointing/integrity.h"
#include "megatron/dist_checkpointing/tensor_values.h"

namespace megatron {
namespace {

constexpr int64_t kVerifyMebibyte = 1 << 20;
constexpr int64_t kElementsAtOnce = 1 << 20;

struct VerifyReport {
  std::string directory;
  int64_t num_tensors = 0, num_objects = 0, bytes = 0;
  bool has_hashes = false;
  std::vector<std::string> problems;
};

int64_t stored_bytes(const CheckpointMetadata& metadata) {
  int64_t bytes = 0;
  for (const auto& [key, item] : metadata.objects) bytes += item.bytes;
  for (const auto& [key, tensor] : metadata.tensors)
    for (const StoredChunk& chunk : tensor.chunks) bytes += chunk.item.bytes;
  return bytes;
}

/// NaN and infinity in a tensor; nothing if all numbers are finite.
std::optional<std::string> problem_of_values(const CheckpointReader& reader, const std::string& key,
                                             const GlobalTensor& tensor) {
  if (!has_values(tensor.type)) return std::nullopt;
  int64_t num_nan = 0, num_infinite = 0;
  std::vector<std::byte> bytes;
  for (const Box& slab : cut_into_slabs(tensor.shape, kElementsAtOnce)) {
    bytes.resize(static_cast<size_t>(slab.sizes.num_elements() * size_of(tensor.type)));
    reader.read_box(key, slab, bytes.data());
    for (const double value : values_of(tensor.type, bytes)) {
      num_nan += std::isnan(value);
      num_infinite += std::isinf(value);
    }
  }
  if (num_nan + num_infinite == 0) return std::nullopt;
  return fmt::format("{} of {} elements: {} are NaN, {} are infinite", key, tensor.shape.num_elements(), num_nan,
                     num_infinite);
}

void check_values(const CheckpointReader& reader, Progress& progress, std::vector<std::string>& problems) {
  const auto& tensors = reader.metadata().tensors;
  progress.begin({.title = "values", .unit = "tensors", .total = std::ssize(tensors)});
  int64_t done = 0;
  for (const auto& [key, tensor] : tensors) {
    try {
      if (auto problem = problem_of_values(reader, key, tensor)) problems.push_back(std::move(*problem));
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
    progress.update(++done, "");
  }
  progress.end();
}

VerifyReport verified(FileSystem& files, const CheckpointFlags& flags, Progress& progress, std::ostream& err) {
  const CheckpointReader reader = open_checkpoint(files, flags.load[0], flags.ckpt_step, err);
  VerifyReport report{.directory = reader.directory(),
                      .num_tensors = std::ssize(reader.metadata().tensors),
                      .num_objects = std::ssize(reader.metadata().objects),
                      .bytes = stored_bytes(reader.metadata()),
                      .has_hashes = files.exists(join_path(reader.directory(), kIntegrityFile)),
                      .problems = {}};
  progress.begin({.title = "verifying", .unit = "MiB", .total = report.bytes / kVerifyMebibyte});
  int64_t done = 0;
  report.problems = reader.verify([&](int64_t bytes) { progress.update((done += bytes) / kVerifyMebibyte, ""); });
  progress.end();
  if (report.has_hashes)
    for (std::string& problem : verify_integrity(files, report.directory))
      report.problems.push_back(std::move(problem));
  if (flags.check_values) check_values(reader, progress, report.problems);
  return report;
}

}  // namespace

void verify_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err) {
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  const VerifyReport report = verified(files, flags, progress, err);
  if (flags.json)
    out << nlohmann::ordered_json{{"directory", report.directory},     {"num_tensors", report.num_tensors},
                                  {"num_objects", report.num_objects}, {"bytes", report.bytes},
                                  {"has_hashes", report.has_hashes},   {"problems", report.problems}}
               .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
        << '\n';
  else
    for (const std::string& problem : report.problems) out << problem << '\n';
  require<CheckpointError>(report.problems.empty(), "[checkpoint] {}: {} problem{} found. Load another checkpoint.",
                           report.directory, report.problems.size(), report.problems.size() == 1 ? "" : "s");
  if (!flags.json)
    out << fmt::format("{}: {} tensors and {} objects of {} are whole{}{}\n", report.directory, report.num_tensors,
                       report.num_objects, size_text(report.bytes),
                       report.has_hashes ? ", files have the hashes of integrity.json" : "",
                       flags.check_values ? ", all values are finite" : "");
}

}  // namespace megatron
