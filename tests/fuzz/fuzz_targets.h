// Readers of files that others wrote, each as a function that takes any bytes. libFuzzer calls them (fuzz_main.cpp),
// and so does a test on files of the repository (fuzz_corpus_test.cpp).
#pragma once

#include <cstddef>
#include <span>

namespace megatron::testing {

/// Each reads the bytes as one file, and what it holds. @throw Error for bytes that are no such file. Anything else, a
/// crash, another exception or much memory, is a fault of the reader.
void fuzz_safetensors(std::span<const std::byte> input);
void fuzz_pickle(std::span<const std::byte> input);
/// A zip archive of torch.save.
void fuzz_torch_file(std::span<const std::byte> input);
/// `.metadata` of a checkpoint. What is read is written and read again, and must be the same.
void fuzz_metadata(std::span<const std::byte> input);
/// config.json of a Hugging Face model.
void fuzz_config_json(std::span<const std::byte> input);
/// tokenizer.json of a Hugging Face model. A text of many scripts is encoded by it, and decoded.
void fuzz_tokenizer_json(std::span<const std::byte> input);
/// A chat template. A conversation with a tool call is rendered by it.
void fuzz_chat_template(std::span<const std::byte> input);
/// A file of JSON lines, perhaps compressed, as preprocess_data reads it, in blocks of a few bytes.
void fuzz_json_lines(std::span<const std::byte> input);
/// The .idx of a dataset whose .bin has as many bytes as it says.
void fuzz_token_index(std::span<const std::byte> input);
/// An index of samples in NumPy's format.
void fuzz_npy(std::span<const std::byte> input);

}  // namespace megatron::testing
