#include "tests/commands/bad_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "commands/data.h"
#include "commands/generate.h"
#include "commands/preprocess_data.h"
#include "commands/pretrain.h"
#include "megatron/models/gpt/gpt_family.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string placed(std::string text, const std::string& folder) {
  for (size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + folder.size()))
    text.replace(at, 1, folder);
  return text;
}

Words right_words(Command command) {
  switch (command) {
    case Command::kPretrainGpt:
      return words_of(
          "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16"
          " --micro-batch-size 2 --global-batch-size 4 --train-iters 2 --lr 1e-3 --tokenizer-type CharTokenizer"
          " --vocab-file @/chars.txt --data-path @/data --split 8,1,1 --eval-iters 1 --num-threads 1"
          " --data-cache-path @/cache");
    case Command::kPreprocessData:
      return words_of("--input @/text.txt --output-prefix @/out --tokenizer-type ByteLevelTokenizer --workers 1");
    case Command::kGenerate:
      return words_of("--load @/ckpt --vocab-file @/chars.txt --prompt abc --num-tokens 2 --num-threads 1");
    case Command::kData:
      return {"inspect", "--data-path", "@/data"};
  }
  return {};
}

std::string heading_of(Command command) {
  switch (command) {
    case Command::kPretrainGpt:
      return "megatron pretrain_gpt: ";
    case Command::kPreprocessData:
      return "megatron preprocess_data: ";
    case Command::kGenerate:
      return "megatron generate: ";
    case Command::kData:
      return "megatron data: ";
  }
  return {};
}

void make_materials(const std::string& folder) {
  std::string text;
  for (int paragraph = 0; paragraph < 40; ++paragraph) {
    for (int i = 0; i < 60; ++i) text += "abcdefgh "[(i * i + paragraph * (i + 3)) % 9];
    text += "x\n\n";
    text[text.size() - 3] = 'a';
  }
  std::ofstream(folder + "/text.txt") << text;
  const auto make = [&](Command command, Words words) {
    for (std::string& word : words) word = placed(word, folder);
    const Outcome outcome = run(command, words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  };
  make(Command::kPreprocessData,
       {"--input", "@/text.txt", "--input-format", "text", "--text-documents", "blank-line", "--tokenizer-type",
        "CharTokenizer", "--vocab-file", "@/chars.txt", "--make-char-vocab", "--output-prefix", "@/data"});
  for (const char* suffix : {".bin", ".idx"})
    fs::rename(folder + "/data_text_document" + suffix, folder + "/data" + suffix);
  Words train = right_words(Command::kPretrainGpt);
  train.insert(train.end(), {"--save", "@/ckpt", "--save-interval", "2"});
  make(Command::kPretrainGpt, train);
  fs::remove_all(folder + "/cache");
  fs::create_directory(folder + "/cache");
}

/// Made once, copied for each case.
const std::string& materials() {
  static const ScratchDirectory scratch;
  static const bool made = (make_materials(scratch.path()), true);
  EXPECT_TRUE(made);
  return scratch.path();
}

/// Content of all files below a folder, by path within it.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_directory())
      files[fs::relative(entry.path(), folder)] = entry.is_regular_file() ? content_of(entry.path()) : "special";
  return files;
}

void expect_no_damage(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& after,
                      const std::string& may_write) {
  for (const auto& [name, content] : before) {
    const auto found = after.find(name);
    if (found == after.end())
      ADD_FAILURE() << name << " is gone";
    else
      EXPECT_TRUE(found->second == content) << name << " has changed";
  }
  for (const auto& [name, content] : after)
    EXPECT_TRUE(before.contains(name) || name.starts_with(may_write)) << name << " is left behind";
}

/// Limits the size of files: writes beyond it fail, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::optional<uint64_t> bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    if (!bytes) return;
    const rlimit limit{*bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    ::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  sighandler_t old_handler_;
  rlimit old_limit_{};
};

/// A damaged copy of the materials, and the arguments of a case that point to it.
struct Scene {
  explicit Scene(const BadInput& input) {
    fs::copy(materials(), scratch.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    if (input.damage) input.damage(scratch.path());
    words = right_words(input.command);
    for (const std::string& flag : input.without) {
      const auto found = std::find(words.begin(), words.end(), flag);
      if (found == words.end())
        ADD_FAILURE() << flag << " is not among the right words";
      else
        words.erase(found, found + 2);
    }
    words.insert(words.end(), input.words.begin(), input.words.end());
    for (std::string& word : words) word = placed(word, scratch.path());
  }

  ScratchDirectory scratch;
  Words words;
};

Outcome run(const Scene& scene, const BadInput& input) {
  const FileSizeLimit limit(input.most_file_bytes);
  return testing::run(input.command, scene.words);
}

}  // namespace

Outcome run(Command command, const Words& words) {
  std::ostringstream out, err;
  const auto call = [&] {
    switch (command) {
      case Command::kPretrainGpt:
        return pretrain_command(gpt_family(), words, out, err);
      case Command::kPreprocessData:
        return preprocess_data_command(words, out, err);
      case Command::kGenerate:
        return generate_command(words, out, err);
      case Command::kData:
        return data_command(words, out, err);
    }
    return 0;
  };
  const int status = call();
  return {status, out.str(), err.str()};
}

void expect_refusal(const BadInput& input) {
  SCOPED_TRACE(input.name);
  const Scene scene(input);
  const auto before = contents(scene.scratch.path());
  const Outcome outcome = run(scene, input);
  const std::string heading = heading_of(input.command);
  EXPECT_EQ(outcome.status, static_cast<int>(input.code)) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with(heading)) << outcome.err;
  EXPECT_EQ(outcome.err.find("\nmegatron "), std::string::npos) << "two errors: " << outcome.err;
  EXPECT_GT(outcome.err.size(), heading.size() + 1) << "the error says nothing";
  for (const std::string& text : input.texts)
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(placed(text, scene.scratch.path())));
  EXPECT_TRUE(input.command != Command::kGenerate || outcome.out.empty()) << "text before an error: " << outcome.out;
  expect_no_damage(before, contents(scene.scratch.path()), input.may_write);
}

void expect_refusals(const std::vector<BadInput>& inputs) {
  for (const BadInput& input : inputs) expect_refusal(input);
}

std::string expect_success(const BadInput& input) {
  SCOPED_TRACE(input.name);
  const Scene scene(input);
  const auto before = contents(scene.scratch.path());
  const Outcome outcome = run(scene, input);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  expect_no_damage(before, contents(scene.scratch.path()), input.may_write);
  return outcome.out + outcome.err;
}

std::function<void(const std::string&)> write(const std::string& name, const std::string& content) {
  return [=](const std::string& folder) { std::ofstream(folder + "/" + name, std::ios::binary) << content; };
}

std::function<void(const std::string&)> remove(const std::string& name) {
  return [=](const std::string& folder) { fs::remove_all(folder + "/" + name); };
}

std::function<void(const std::string&)> fifo(const std::string& name) {
  return [=](const std::string& folder) {
    fs::remove(folder + "/" + name);
    ASSERT_EQ(::mkfifo((folder + "/" + name).c_str(), 0600), 0) << name;
  };
}

std::function<void(const std::string&)> truncate(const std::string& name, int64_t bytes) {
  return [=](const std::string& folder) {
    const fs::path path = folder + "/" + name;
    const auto size = static_cast<int64_t>(fs::file_size(path));
    fs::resize_file(path, static_cast<uintmax_t>(bytes < 0 ? size + bytes : bytes));
  };
}

std::function<void(const std::string&)> overwrite(const std::string& name, int64_t offset, const std::string& bytes) {
  return [=](const std::string& folder) {
    std::fstream file(folder + "/" + name, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file << bytes;
    EXPECT_TRUE(file.good()) << name;
  };
}

}  // namespace megatron::testing
