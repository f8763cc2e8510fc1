#include "megatron/training/rejected_steps.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/comm/texts.h"
#include "megatron/telemetry/line_file.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

/// JSON has no NaN: numbers are texts.
std::string text_of(double value) { return fmt::format("{}", value); }

}  // namespace

std::string rejected_step_path(const std::string& save) { return save + "/rejected_step.json"; }

void write_rejected_step(FileSystem& files, const std::string& path, const RejectedStep& step) {
  Json json{{"iteration", step.iteration},
            {"loss", text_of(step.loss)},
            {"grad_norm", text_of(step.grad_norm)},
            {"places", step.places}};
  if (step.injected) json["injected"] = static_cast<int>(*step.injected);
  replace_file(files, path, json.dump(1) + "\n");
}

std::optional<RejectedStep> parse_rejected_step(const std::string& text, const std::string& path) {
  if (text.empty()) return std::nullopt;
  try {
    const Json json = Json::parse(text);
    RejectedStep step{.iteration = json.at("iteration"),
                      .loss = std::stod(json.at("loss").get<std::string>()),
                      .grad_norm = std::stod(json.at("grad_norm").get<std::string>()),
                      .places = json.at("places"),
                      .injected = {}};
    if (json.contains("injected")) step.injected = static_cast<InjectedError>(json["injected"].get<int>());
    return step;
  } catch (const std::exception& error) {
    throw CheckpointError(
        fmt::format("{} is not what a rejected step leaves behind ({}). Remove it to go on without "
                    "telling apart why the run before stopped.",
                    path, error.what()));
  }
}

EarlierRejectedStep::EarlierRejectedStep(FileSystem& files, const std::string* load, const ProcessGroup& world)
    : files_(files), path_(load ? rejected_step_path(*load) : ""), removes_(world.rank() == 0) {
  const bool reads = load && world.rank() == 0 && files.exists(path_);
  step_ = parse_rejected_step(broadcast_text(world, reads ? read_file(files, path_) : "", 0, "rejected step"), path_);
}

std::optional<RejectedStep> EarlierRejectedStep::at_start(int64_t iteration) const {
  return step_ && step_->iteration == iteration ? step_ : std::nullopt;
}

std::string EarlierRejectedStep::note_at_start(int64_t iteration) const {
  if (!step_ || step_->iteration <= iteration) return {};
  return fmt::format(
      "{} is of iteration {}, which this run reaches from another state, as it begins with iteration "
      "{}: the results are not compared",
      path_, step_->iteration, iteration);
}

void EarlierRejectedStep::pass(int64_t iteration) {
  if (!step_ || step_->iteration > iteration) return;
  step_.reset();
  if (removes_) files_.remove(path_);
}

std::vector<int64_t> parse_rejected_iterations(const std::string& text, const std::string& path) {
  std::vector<int64_t> iterations;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    int64_t iteration = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), iteration);
    require<DataError>(error == std::errc{} && end == word.data() + word.size() && iteration >= 1,
                       "--result-rejected-tracker-filename {}: '{}' is not an iteration. The file has one a line; "
                       "correct it, or remove it.",
                       path, word);
    iterations.push_back(iteration);
  }
  return iterations;
}

void append_rejected_iteration(FileSystem& files, const std::string& path, int64_t iteration) {
  const std::unique_ptr<WritableFile> file = open_line_file(files, path);
  const std::string line = std::to_string(iteration) + "\n";
  file->append(std::as_bytes(std::span(line)));
  file->sync();
}

}  // namespace megatron
