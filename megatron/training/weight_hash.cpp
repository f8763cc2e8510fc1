#include "megatron/training/weight_hash.h"

#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/md5.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/core/copy.h"
#include "megatron/distributed/replica_groups.h"

namespace megatron {
namespace {

std::string hash_of(Device& device, const Tensor& weight) {
  std::vector<std::byte> bytes(static_cast<size_t>(weight.bytes()));
  copy_to_host(device, weight.view().data, bytes);
  return md5_hex(bytes);
}

/// The parameters of a grid.
std::vector<const Parameter*> parameters_of(Trainer& trainer, ShardGrid grid) {
  std::vector<const Parameter*> parameters;
  for (const Parameter* parameter : trainer.model().parameters())
    if (parameter->options().shard.grid == grid) parameters.push_back(parameter);
  return parameters;
}

/// This rank's number, then a line for each parameter: its name and the hash of its bytes.
std::string hashes_of(Trainer& trainer, const std::vector<const Parameter*>& parameters) {
  std::string text = std::to_string(trainer.groups().world.rank()) + "\n";
  for (const Parameter* parameter : parameters)
    text += parameter->name() + " " + hash_of(trainer.device(), parameter->value()) + "\n";
  return text;
}

std::vector<std::string> hash_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void require_equal_replicas(Trainer& trainer, const std::vector<const Parameter*>& parameters,
                            const ProcessGroup& replicas) {
  std::vector<std::vector<std::string>> hashes;
  for (const std::string& text : gather_texts(replicas, hashes_of(trainer, parameters), "hashes of weights"))
    hashes.push_back(hash_lines(text));
  size_t num_different = 0;
  std::string first, ranks;
  for (size_t p = 1; p < hashes[0].size(); ++p) {
    std::vector<std::string> others;
    for (size_t replica = 1; replica < hashes.size(); ++replica)
      if (hashes[replica].at(p) != hashes[0][p]) others.push_back(hashes[replica][0]);
    if (others.empty() || ++num_different > 1) continue;
    first = hashes[0][p].substr(0, hashes[0][p].find(' '));
    ranks = joined(others, ", ");
  }
  require<Error>(num_different == 0,
                 "[weight hash] after iteration {}: {} on rank{} {} is not that of rank {}{}. Replicas step the same "
                 "gradients and stay equal bit for bit, so memory or hardware of one of these ranks is at fault. Start "
                 "again from the last checkpoint without it.",
                 trainer.progress().iteration, first, ranks.find(',') == std::string::npos ? "" : "s", ranks,
                 hashes[0][0], num_different > 1 ? fmt::format(", nor are {} more parameters", num_different - 1) : "");
}

}  // namespace

void require_equal_replicas(Trainer& trainer) {
  trainer.finish_param_sync();
  for (const ShardGrid grid : {ShardGrid::kDense, ShardGrid::kExpert})
    if (const auto parameters = parameters_of(trainer, grid); !parameters.empty())
      require_equal_replicas(trainer, parameters, replicas_of(grid, trainer.groups()).all);
}

}  // namespace megatron
