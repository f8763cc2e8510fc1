#include "commands/program.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "commands/bench/bench.h"
#include "commands/bridge.h"
#include "commands/build_commit.h"
#include "commands/build_sequences_per_dataset.h"
#include "commands/checkpoint/checkpoint.h"
#include "commands/convert.h"
#include "commands/data.h"
#include "commands/eval.h"
#include "commands/exit_code.h"
#include "commands/file_signals.h"
#include "commands/generate.h"
#include "commands/launch/launch_environment.h"
#include "commands/merge_datasets.h"
#include "commands/plan.h"
#include "commands/plot_losses.h"
#include "commands/prepare_cache.h"
#include "commands/preprocess_data.h"
#include "commands/pretrain.h"
#include "commands/tokenize.h"
#include "commands/verify.h"
#include "megatron/base/flag_synonym.h"
#include "megatron/base/nearest_name.h"

namespace megatron {
namespace {

using Words = std::vector<std::string>;

struct Command {
  std::string name;
  std::function<int(const Words& args, std::ostream& out, std::ostream& err)> run;
  std::string help;
  bool runs_on_ranks = false;  // may run on ranks that a launcher has started
};

/// @param families  must outlive the commands.
std::vector<Command> commands_for(const std::vector<ModelFamily>& families) {
  std::vector<Command> commands;
  commands.reserve(families.size());
  for (const ModelFamily& family : families)
    commands.push_back({"pretrain_" + family.name,
                        [&family](const Words& args, std::ostream& out, std::ostream& err) {
                          return pretrain_command(family, args, out, err);
                        },
                        fmt::format("train {} with Megatron's flags", family.description), true});
  commands.push_back({"finetune",
                      [&family = families.front()](Words args, std::ostream& out, std::ostream& err) {
                        args.insert(args.begin(), "--sft");
                        return pretrain_command(family, args, out, err);
                      },
                      fmt::format("fine-tune {} on conversations: pretrain_{} --sft", families.front().description,
                                  families.front().name),
                      true});
  const auto with_family = [&](auto command) {
    return [&family = families.front(), command](const Words& args, std::ostream& out, std::ostream& err) {
      return command(args, out, err, family);
    };
  };
  const std::vector<Command> others = {
      {"preprocess_data", preprocess_data_command, "turn text into .bin and .idx files"},
      {"prepare_cache", prepare_cache_command, "build the index caches of a training run beforehand"},
      {"build_sequences_per_dataset", build_sequences_per_dataset_command,
       "count the sequences of many datasets for Megatron-LM"},
      {"merge_datasets", merge_datasets_command, "join .bin and .idx files of one type"},
      {"tokenize", tokenize_command, "print the token ids of a text, or the text of ids"},
      {"generate", with_family(generate_command), "continue a text with a trained model", true},
      {"eval", with_family(eval_command), "print the loss of a model on tokens or text", true},
      {"bridge", with_family(bridge_command), "convert models from and to Hugging Face's format"},
      {"convert", convert_command, "convert models and checkpoints by the flags of Megatron's convert.py"},
      {"checkpoint", checkpoint_command, "inspect, verify, compare, reshard and prune checkpoints"},
      {"data", data_command, "inspect and check datasets"},
      {"plan", plan_command, "draw pipeline schedules, with their bubble and memory"},
      {"plot_losses", plot_losses_command, "draw the loss curves of several runs on one picture"},
      {"bench", bench_command, "measure kernels, collectives and training steps against the limits of the machine",
       true},
      {"verify", with_family(verify_command), "compare layouts of ranks with one rank, tensor by tensor"},
  };
  commands.insert(commands.end(), others.begin(), others.end());
  return commands;
}

void print_usage(const std::vector<Command>& commands, std::ostream& out) {
  out << "usage: megatron COMMAND [FLAGS]\n\n";
  for (const Command& command : commands)
    out << "  " << command.name << std::string(29 - command.name.size(), ' ') << command.help << '\n';
  out << "\n'megatron COMMAND --help' describes the flags of a command,\n'megatron --version' prints the version.\n";
}

std::vector<FlagSynonym> command_synonyms() {
  return {
      {"train training pretrain pretrain-gpt gpt", "pretrain_gpt"},
      {"sft fine-tune finetune-gpt fine-tuning post-train", "finetune"},
      {"encode decode tokenizer detokenize", "tokenize"},
      {"preprocess prepare prepare-data", "preprocess_data"},
      {"inference infer sample text-generation complete", "generate"},
      {"evaluate evaluation perplexity score", "eval"},
      {"import export hf huggingface hugging-face", "bridge"},
      {"ckpt checkpoints prune diff", "checkpoint"},
      {"inspect dataset datasets", "data"},
      {"merge concatenate join", "merge_datasets"},
      {"schedule schedules simulate memory", "plan"},
      {"plot chart", "plot_losses"},
      {"benchmark profile tune gemm", "bench"},
      {"compare check test", "verify"},
  };
}

/// Accepts file names of Megatron-LM's scripts, such as tools/preprocess_data.py. @return the command's name, or
/// nothing
std::string nearest_command(const std::vector<Command>& commands, const std::string& word) {
  const std::string stem = std::filesystem::path(word).stem();
  if (const auto synonym = find_synonym(stem, command_synonyms())) return synonym->flags;
  std::string name = stem;
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const Command& command : commands) names.emplace_back(command.name);
  return nearest_name(name, names);
}

/// Rejects several processes, so that mpirun does not start the same work several times.
int status_as_one_process(const Command& command) {
  return run_command(command.name, std::cerr, [&] {
    const int size = launch_environment(process_environment()).size;
    require<ConfigError>(
        size == 1, "a launcher started {} processes, but this command needs one. Start it without mpirun or srun.",
        size);
  });
}

/// Returns a failure if the output could not be written.
int status_with_output(int status) {
  std::cout.flush();
  if (std::cout.good() || status != 0) return status;
  std::cerr << "megatron: standard output cannot be written. Is its disk full, or its pipe closed?\n";
  return static_cast<int>(ExitCode::kIo);
}

/// The least number of running tasks in a few samples, this one included; empty where the system does not report it.
std::optional<int> num_running_programs() {
  constexpr int kLooks = 4;
  constexpr std::chrono::microseconds kBetweenLooks{500};
  std::optional<int> fewest;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    std::ifstream file("/proc/loadavg");
    double of_1_minute = 0, of_5_minutes = 0, of_15_minutes = 0;
    int running = 0;
    if (file >> of_1_minute >> of_5_minutes >> of_15_minutes >> running)
      fewest = std::min(fewest.value_or(running), running);
  }
  return fewest;
}

/// True if the other running programs fit on the cores that this one may not use.
bool are_own_cores_idle() {
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return false;
  const auto running = num_running_programs();
  return running && *running - 1 <= sysconf(_SC_NPROCESSORS_ONLN) - CPU_COUNT(&own);
}

/// OpenMP's threads spin while they wait for each other, by default for some 10 ms: on a machine that does other work
/// too, or in a container with fewer cores than it sees, a step then takes ten times as long. So they spin for about 50
/// us and then sleep; for 1 ms on idle cores, as waking a thread takes about as long as a small kernel.
/// GCC's OpenMP reads its variables before main(), hence the restart of this program. Variables that the user has set
/// are kept; if the restart fails, the program only runs slower.
void restart_with_short_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", are_own_cores_idle() ? "20000" : "1000", 0);
  execv(own_program().c_str(), argv);  // by its own path, so that ps and killall see its name
}

}  // namespace

int run_program(int argc, char** argv, const std::vector<ModelFamily>& families) {
  restart_with_short_spinning(argv);
  handle_file_signals();
  const Words words(argv + 1, argv + argc);
  const std::vector<Command> commands = commands_for(families);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_usage(commands, words.empty() ? std::cerr : std::cout);
    return static_cast<int>(words.empty() ? ExitCode::kUsage : ExitCode::kSuccess);
  }
  if (words[0] == "--version") {
    std::cout << "megatron " << MEGATRON_VERSION << " (" << build_commit() << ")\n";
    return status_with_output(0);
  }
  for (const Command& command : commands)
    if (command.name == words[0]) {
      const int refused = command.runs_on_ranks ? 0 : status_as_one_process(command);
      if (refused != 0) return refused;
      return status_with_output(command.run({words.begin() + 1, words.end()}, std::cout, std::cerr));
    }
  const std::string near = nearest_command(commands, words[0]);
  std::cerr << "megatron: there is no command '" << words[0] << "'"
            << (near.empty() ? "." : fmt::format("; did you mean 'megatron {}'?", near)) << "\n\n";
  print_usage(commands, std::cerr);
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace megatron
