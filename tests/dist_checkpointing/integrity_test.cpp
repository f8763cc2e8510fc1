#include "megatron/dist_checkpointing/integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/sha256.h"
#include "tests/dist_checkpointing/memory_file_system.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string hash_of(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

/// The examples of FIPS 180-2 and the empty message.
TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  const std::string message(300, 'x');
  for (const size_t step : {1, 7, 63, 64, 65, 128}) {
    Sha256 hash;
    for (size_t at = 0; at < message.size(); at += step)
      hash.add(std::as_bytes(std::span(message)).subspan(at, std::min(step, message.size() - at)));
    EXPECT_EQ(hash.hex(), hash_of(message)) << step;
  }
}

TEST(Integrity, NamesEveryChangedOrMissingFile) {
  MemoryFileSystem files;
  files.create_directories("c/tokenizer");
  replace_file(files, "c/a", "one");
  replace_file(files, "c/b", "two");
  EXPECT_THAT([&] { verify_integrity(files, "c"); },
              ThrowsMessage<CheckpointError>(HasSubstr("c/integrity.json does not")));
  write_integrity(files, "c", {});
  EXPECT_EQ(read_file(files, "c/integrity.json"),
            R"({"algorithm":"sha256","files":{"a":")" + hash_of("one") + R"(","b":")" + hash_of("two") + R"("}})");
  EXPECT_THAT(verify_integrity(files, "c"), ElementsAre());
  replace_file(files, "c/a", "One");
  files.remove("c/b");
  EXPECT_THAT(verify_integrity(files, "c"), ElementsAre(HasSubstr("c/a was changed"), "c/b is missing"));
  replace_file(files, "c/integrity.json", "{}");
  EXPECT_THROW(verify_integrity(files, "c"), CheckpointError);
}

}  // namespace
}  // namespace megatron
