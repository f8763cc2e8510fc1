#include "tests/parallel/run_record.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "megatron/base/error.h"

namespace megatron::testing {
namespace {

constexpr size_t kNumFields = 8;
constexpr std::string_view kNone = "-";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line)
    if (c == '\t')
      fields.emplace_back();
    else
      fields.back() += c;
  return fields;
}

void write(const std::string& path, int flags, const std::string& text) {
  const int file = ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const bool is_written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  require<IoError>(is_written, "cannot write '{}'", path);
}

}  // namespace

RunRecord::RunRecord(std::string path, std::string_view commit) : path_(std::move(path)) {
  const std::string head = fmt::format("commit {}", commit);
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != head) {
    write(path_, O_TRUNC, head + "\n");
    return;
  }
  std::stringstream rest;
  rest << file.rdbuf();
  // The next record begins a line of its own.
  if (!rest.str().empty() && rest.str().back() != '\n') write(path_, O_APPEND, "\n");
}

std::vector<RecordedCase> RunRecord::cases() const {
  std::vector<RecordedCase> all;
  std::ifstream file(path_);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != kNumFields || fields.back() != ".") continue;
    const auto number = [&](size_t i) { return std::strtod(fields[i].c_str(), nullptr); };
    const auto error = [&](size_t i) { return fields[i] == kNone ? std::nullopt : std::optional(number(i)); };
    all.push_back({.group = fields[0],
                   .name = fields[1],
                   .end_time = number(2),
                   .seconds = number(3),
                   .outcome = {.loss_error = error(4), .grad_norm_error = error(5), .failure = fields[6]}});
  }
  return all;
}

void RunRecord::append(const RecordedCase& done) const {
  std::string failure = done.outcome.failure;
  std::replace_if(
      failure.begin(), failure.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  const auto text = [](const std::optional<double>& error) {
    return error ? fmt::format("{:.3e}", *error) : std::string(kNone);
  };
  write(path_, O_APPEND,
        fmt::format("{}\t{}\t{:.0f}\t{:.3f}\t{}\t{}\t{}\t.\n", done.group, done.name, done.end_time, done.seconds,
                    text(done.outcome.loss_error), text(done.outcome.grad_norm_error), failure));
}

}  // namespace megatron::testing
