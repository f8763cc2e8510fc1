#include "commands/bridge_verification.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/safetensors.h"

namespace megatron {

StoredLogits read_stored_logits(const FileSystem& files, const std::string& path) {
  require<DataError>(files.exists(path),
                     "[bridge] --verify has nothing to compare with: {} is missing. Give a safetensors file with the "
                     "tensors input_ids [sequences, tokens] and logits [sequences, tokens, vocabulary], fp32, with "
                     "--verify-logits.",
                     path);
  StoredLogits stored{.path = path, .tokens = read_token_ids(files, path), .logits = {}};
  const SafetensorsFile file(files.open_for_reading(path), path);
  require<DataError>(file.tensors().contains("logits"),
                     "[bridge] --verify has nothing to compare with: {} has no tensor logits. Store the logits of its "
                     "input_ids under this name.",
                     path);
  const SafetensorsFile::Tensor& tensor = file.tensor("logits");
  const SafetensorsFile::Tensor& ids = file.tensor("input_ids");
  const bool fits = tensor.type == ElementType::kFloat32 && tensor.shape.rank() == 3 &&
                    tensor.shape[0] == ids.shape[0] && tensor.shape[1] == ids.shape[1] &&
                    tensor.shape.num_elements() > 0;
  require<DataError>(fits,
                     "[bridge] {}: logits are {} {} for input_ids {}; fp32 [sequences, tokens, vocabulary] is needed, "
                     "one row for each id.",
                     path, tensor.type, tensor.shape, ids.shape);
  stored.vocab_size = tensor.shape[2];
  const std::vector<std::byte> bytes = file.read("logits");
  stored.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(stored.logits.data(), bytes.data(), bytes.size());
  return stored;
}

LogitDifference compare_logits(FileSystem& files, const CheckpointConfig& checkpoint, const StoredLogits& stored,
                               const EvaluationDevice& device, const ModelFamily& family) {
  const PretrainConfig config = config_to_evaluate(files, checkpoint, family);
  TransformerConfig network = config.transformer;
  require<DataError>(
      network.vocab_size == stored.vocab_size,
      "[bridge] {} has logits for {} tokens of a vocabulary, the model for {}. They must be of one model.", stored.path,
      stored.vocab_size, network.vocab_size);
  network.params_dtype = DType::kFloat32;
  network.sequence_length = longest(stored.tokens);
  EvaluatedModel model(files, checkpoint, network, config.family, single_rank(device, network.params_dtype));
  LogitDifference worst;
  const float* expected = stored.logits.data();
  for (size_t sequence = 0; sequence < stored.tokens.size(); ++sequence) {
    const std::vector<float> computed = model.evaluator().logits(stored.tokens[sequence]);
    for (size_t i = 0; i < computed.size(); ++i, ++expected) {
      double difference = std::abs(static_cast<double>(computed[i]) - *expected);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      if (difference <= worst.largest) continue;
      const auto place = static_cast<int64_t>(i);
      worst = {
          difference, static_cast<int64_t>(sequence), place / stored.vocab_size, place % stored.vocab_size, computed[i],
          *expected};
    }
  }
  return worst;
}

}  // namespace megatron
