#include "commands/verify.h"

#include <algorithm>
#include <iostream>

#include "commands/exit_code.h"
#include "commands/launch/rank_thread_failures.h"
#include "commands/terminal.h"
#include "commands/verify_config.h"
#include "megatron/base/command_help.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

constexpr size_t kMostDepartures = 3;  // printed for a layout; later ones are mostly consequences

/// A sample of the built-in model: random tokens, a tenth of them masked in the loss.
void append_sample(const PretrainConfig& config, int64_t number, MicroBatch<int64_t>& batch) {
  const RandomKey key = RandomKey::from_seed(static_cast<uint64_t>(config.training.seed)).at("sample").at(number);
  const auto vocab = static_cast<double>(config.transformer.vocab_size);
  batch.sequence_length = config.model.seq_length.value();
  for (int64_t i = 0; i < batch.sequence_length; ++i) {
    batch.tokens.push_back(static_cast<int64_t>(uniform(key.at("token"), i) * vocab));
    batch.labels.push_back(static_cast<int64_t>(uniform(key.at("token"), i + 1) * vocab));
    batch.position_ids.push_back(i);
    batch.loss_mask.push_back(uniform(key.at("mask"), i) < 0.1 ? 0.0F : 1.0F);
    batch.num_valid_tokens += batch.loss_mask.back() != 0;
  }
  ++batch.num_samples;
  batch.cut_ends.push_back(0);
  batch.sample_indices.push_back(number);
  batch.consumed_samples = number + 1;
}

/// Global batches of the built-in model.
std::vector<GlobalBatch> invented_batches(const PretrainConfig& config, int64_t num_steps) {
  const BatchSize size = microbatch_calculator_of(config).at(0);
  std::vector<GlobalBatch> batches(static_cast<size_t>(num_steps));
  int64_t next = 0;
  for (GlobalBatch& batch : batches)
    for (int64_t m = 0; m < size.num_microbatches; ++m) {
      batch.emplace_back();
      for (int64_t i = 0; i < config.training.micro_batch_size.value(); ++i)
        append_sample(config, next++, batch.back());
    }
  return batches;
}

/// The first global batches of the run, as one rank reads them.
std::vector<GlobalBatch> first_batches(const PretrainConfig& config, const Tokenizer& tokenizer, int64_t num_steps,
                                       Progress& progress) {
  const MessageLog log{.on_info = {}, .on_warning = [&](const std::string& text) { progress.warning(text); }};
  const TrainingData data(config, tokenizer, log, {});
  const std::unique_ptr<BatchReader> reader = data.train_reader(0, 0);
  const MicrobatchCalculator sizes = microbatch_calculator_of(config);
  std::vector<GlobalBatch> batches;
  for (int64_t step = 0, consumed = 0; step < num_steps; ++step) {
    const BatchSize size = sizes.at(consumed);
    const auto read = reader->read(size.num_microbatches);
    batches.emplace_back(read.begin(), read.end());
    consumed += size.running_batch_size;
  }
  return batches;
}

/// "gradient of NAME, step 2": steps count from 1, as iterations do.
std::string place_of(const LayoutDifference& difference, int64_t num_steps) {
  const int64_t step = difference.step + 1;
  switch (difference.compared) {
    case Compared::kWeight:
      return difference.step == num_steps ? fmt::format("{} after step {}", difference.tensor, num_steps)
                                          : fmt::format("{} before step {}", difference.tensor, step);
    case Compared::kLoss:
      return fmt::format("loss, step {}", step);
    case Compared::kGradient:
      return fmt::format("gradient of {}, step {}", difference.tensor, step);
    case Compared::kGradNorm:
      return fmt::format("gradient norm, step {}", step);
  }
  return "";
}

/// Layout, error, bound, their ratio, verdict, and the place.
constexpr std::string_view kRow = "{:<46}{:>9}{:>9}{:>13}  {:<9}{}";

std::string row_of(const std::string& layout, const LayoutReport& report, int64_t num_steps) {
  if (!report.failure.empty()) return fmt::format(kRow, layout, "", "", "", "FAILED", report.failure);
  const LayoutDifference& shown = report.is_same() ? report.largest : report.departures.front();
  const auto number = [](double value) { return fmt::format("{:.1e}", value); };
  // A tensor of rounding errors only has the measure itself as its bound.
  return fmt::format(kRow, layout, number(shown.error), number(shown.bound), fmt::format("{:.2g}", shown.severity()),
                     report.is_same() ? "same" : "DEPARTS",
                     place_of(shown, num_steps) + (shown.bound >= 1 ? " (rounding only)" : ""));
}

void print_departures(const LayoutReport& report, int64_t num_steps, Progress& progress) {
  for (size_t i = 0; i < std::min(report.departures.size(), kMostDepartures); ++i) {
    const LayoutDifference& departure = report.departures[i];
    progress.message(fmt::format("    {} on rank {}: error {:.3g} of its largest value, rounding bound {:.3g}",
                                 place_of(departure, num_steps), departure.rank, departure.error, departure.bound));
  }
  if (report.departures.size() > kMostDepartures)
    progress.message(fmt::format("    and {} more in this step", report.departures.size() - kMostDepartures));
}

void verify_layouts(const VerifyConfig& config, const ModelFamily& family, const VerifyHooks& hooks,
                    std::ostream& out) {
  ProgressBar progress(bar_options(out, false), [&](std::string_view text) { out << text << std::flush; });
  VerifyPlan plan = plan_of(config);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(plan.one_rank.tokenizer);
  const auto complete = [&](PretrainConfig& layout) {
    set_vocab_size(layout, tokenizer->vocab_size());
    layout.family = family;
  };
  complete(plan.one_rank);
  for (VerifyPlan::Item& item : plan.layouts) complete(item.config);
  const ReferenceRun reference(plan.one_rank,
                               config.model_arguments.empty()
                                   ? invented_batches(plan.one_rank, config.num_steps)
                                   : first_batches(plan.one_rank, *tokenizer, config.num_steps, progress));
  progress.message(fmt::format("one rank, {} steps: loss {:.6g} to {:.6g}, largest gradient norm {:.4g}",
                               reference.num_steps(), reference.step(0).loss.value,
                               reference.step(reference.num_steps() - 1).loss.value, reference.largest_grad_norm()));
  if (plan.num_misfits > 0)
    progress.message(fmt::format(
        "{} layouts of up to 4 ranks do not fit the model; these cover every pair of settings of the others",
        plan.num_misfits));
  progress.message(fmt::format(kRow, "layout", "error", "bound", "error/bound", "verdict", "where"));
  progress.begin({.title = "layouts", .total = std::ssize(plan.layouts)});
  int64_t num_done = 0, num_bad = 0;
  for (const VerifyPlan::Item& item : plan.layouts) {
    progress.update(num_done, to_string(item.layout));
    const LayoutReport report = verify_layout(reference, item.config, hooks);
    progress.message(row_of(to_string(item.layout), report, reference.num_steps()));
    print_departures(report, reference.num_steps(), progress);
    num_bad += report.is_same() ? 0 : 1;
    progress.update(++num_done, "");
  }
  progress.end();
  require<Error>(num_bad == 0, "{} of {} layouts do not train like one rank.", num_bad, num_done);
  progress.message(num_done == 1 ? std::string("the layout trains like one rank")
                                 : fmt::format("all {} layouts train like one rank", num_done));
}

/// A layout that fails is a row of the table; one that hangs ends the process.
VerifyHooks hooks_with_end(std::string_view command, VerifyHooks hooks, std::ostream& err) {
  hooks.ranks.on_hang = report_and_end(command, err).on_hang;
  return hooks;
}

}  // namespace

int verify_command_with(const VerifyHooks& hooks, const std::vector<std::string>& args, std::ostream& out,
                        std::ostream& err, const ModelFamily& family) {
  constexpr std::string_view kName = "verify";
  return run_command(kName, err, [&] {
    if (asks_for_help(args)) return show_text(verify_help(args), out);
    verify_layouts(parse_verify(args), family, hooks_with_end(kName, hooks, err), out);
  });
}

int verify_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                   const ModelFamily& family) {
  return verify_command_with({}, args, out, err, family);
}

}  // namespace megatron
