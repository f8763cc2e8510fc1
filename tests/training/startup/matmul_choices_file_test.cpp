#include "megatron/training/startup/matmul_choices_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/rank_failure.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr const char* kGpu = "NVIDIA H200";
constexpr int64_t kVersion = 130101;

kernels::MatmulChoices one_choice(const std::string& gpu = kGpu, int64_t version = kVersion) {
  kernels::MatmulChoices choices{.gpu = gpu, .library_version = version};
  choices.choices[{.m = 5, .n = 7, .k = 3, .a_stride = 3, .b_stride = 7, .c_stride = 7}] = {.microseconds = 1};
  return choices;
}

class MatmulChoicesFile : public ::testing::Test {
 protected:
  std::string write(const std::string& folder, const std::string& content) {
    files_.create_directories(folder);
    const std::string path = join_path(folder, "nvidia_h200.json");
    replace_file(files_, path, content);
    return path;
  }
  AgreedMatmulChoices agree(const MatmulChoicesQuery& query) const {
    return agree_on_matmul_choices(query, files_, ProcessGroup());
  }
  MatmulChoicesQuery query(std::optional<std::string> file = {}) const {
    return {std::move(file), {scratch_.file("first"), scratch_.file("second")}, kGpu, kVersion};
  }

  PosixFileSystem files_;
  testing::ScratchDirectory scratch_;
};

TEST_F(MatmulChoicesFile, IsFoundByTheNameOfTheGpuInTheFirstFolderThatHasIt) {
  EXPECT_TRUE(agree(query()).choices.choices.empty());
  EXPECT_THAT(agree(query()).text, AllOf(HasSubstr("own choice"), HasSubstr("bench gemm --tune"), HasSubstr(kGpu)));
  const std::string second = write(scratch_.file("second"), to_json(one_choice()));
  EXPECT_EQ(agree(query()).choices, one_choice());
  EXPECT_EQ(agree(query()).text, "matrix products: algorithms for 1 shapes from " + second);
  const std::string first = write(scratch_.file("first"), to_json(one_choice()));
  EXPECT_THAT(agree(query()).text, HasSubstr(first));
  EXPECT_THAT(agree(query(second)).text, HasSubstr(second));
  EXPECT_TRUE(agree(query(kNoMatmulChoices)).choices.choices.empty());
}

TEST_F(MatmulChoicesFile, OfAnotherGpuOrLibraryIsUsedForNone) {
  for (const auto& choices : {one_choice("NVIDIA H100 80GB HBM3"), one_choice(kGpu, 120800)}) {
    const std::string path = write(scratch_.file("first"), to_json(choices));
    const AgreedMatmulChoices found = agree(query());
    EXPECT_TRUE(found.choices.choices.empty());
    EXPECT_THAT(found.text, AllOf(HasSubstr(path), HasSubstr(choices.gpu), HasSubstr("not for all ranks")));
    EXPECT_THAT([&] { agree(query(path)); },
                ThrowsMessage<ConfigError>(AllOf(StartsWith(path), HasSubstr("bench gemm --tune"))));
  }
}

TEST_F(MatmulChoicesFile, ThatIsDamagedEndsTheRun) {
  const std::string good = to_json(one_choice());
  std::string newer = good;
  newer.replace(newer.find("\"format\": 1"), 11, "\"format\": 2");
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), newer}) {
    const std::string path = write(scratch_.file("first"), bad);
    EXPECT_THAT([&] { agree(query()); }, ThrowsMessage<DataError>(StartsWith(path)));
  }
  EXPECT_THROW(agree(query(scratch_.file("missing.json"))), IoError);
}

TEST_F(MatmulChoicesFile, IsThatOfRankZeroOnEveryRank) {
  write(scratch_.file("first"), to_json(one_choice()));
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    MatmulChoicesQuery own = query();
    if (rank.rank > 0) own.folders = {};  // of a host that has no file
    const AgreedMatmulChoices agreed = agree_on_matmul_choices(own, files_, rank.group);
    EXPECT_EQ(agreed.choices, one_choice());
    own = query();
    if (rank.rank == 0) own.folders = {};
    EXPECT_TRUE(agree_on_matmul_choices(own, files_, rank.group).choices.choices.empty());
  });
}

TEST_F(MatmulChoicesFile, IsUsedByAllRanksOrNone) {
  const std::string path = write(scratch_.file("first"), to_json(one_choice()));
  for (const int odd_rank : {0, 2}) {
    const auto own_query = [&](int rank, std::optional<std::string> file) {
      MatmulChoicesQuery own = query(std::move(file));
      if (rank == odd_rank) own.library_version = 120800;
      return own;
    };
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      const AgreedMatmulChoices agreed = agree_on_matmul_choices(own_query(rank.rank, {}), files_, rank.group);
      EXPECT_TRUE(agreed.choices.choices.empty());
      EXPECT_THAT(agreed.text, HasSubstr("not for all ranks"));
      EXPECT_THROW(agree_on_matmul_choices(own_query(rank.rank, path), files_, rank.group), ConfigError);
    });
  }
}

TEST_F(MatmulChoicesFile, IsNotForTf32) {
  MatmulChoicesQuery tf32 = query(write(scratch_.file("first"), to_json(one_choice())));
  tf32.takes_tf32 = true;
  EXPECT_THAT([&] { agree(tf32); },
              ThrowsMessage<NotSupported>(AllOf(StartsWith("--matmul-choices " + *tf32.file),
                                                HasSubstr("--float32-matmul-precision high"), HasSubstr("Leave"))));
  for (const auto& file : {std::optional<std::string>(), std::optional<std::string>(kNoMatmulChoices)}) {
    tf32.file = file;
    EXPECT_TRUE(agree(tf32).choices.choices.empty());
    EXPECT_EQ(agree(tf32).text, "matrix products: TF32, cuBLASLt's own choice of algorithms");
  }
}

TEST(MatmulUse, NamesTheCommandThatMeasuresShapesWithoutAlgorithms) {
  const std::vector<kernels::MatmulKey> products(20);
  const std::string hint = "'megatron bench gemm --tune'";
  EXPECT_THAT(matmul_use_text({.products = products, .num_chosen = 0}), AllOf(HasSubstr("0 of 20"), HasSubstr(hint)));
  EXPECT_THAT(matmul_use_text({.products = products, .num_chosen = 19}), HasSubstr(hint));
  EXPECT_EQ(matmul_use_text({.products = products, .num_chosen = 20}),
            "matrix products: 20 of 20 shapes by measured algorithms");
}

TEST_F(MatmulChoicesFile, IsRefusedOnTheCpu) {
  const DeviceChoice cpu;
  PretrainConfig config;
  EXPECT_EQ(matmul_choices_for(cpu, config, {scratch_.path()}, files_, {}).text, "");
  config.launch.matmul_choices = kNoMatmulChoices;
  EXPECT_EQ(matmul_choices_for(cpu, config, {}, files_, {}).text, "");
  config.launch.matmul_choices = "h200.json";
  EXPECT_THAT([&] { matmul_choices_for(cpu, config, {}, files_, {}); },
              ThrowsMessage<NotSupported>(HasSubstr("--matmul-choices h200.json")));
}

}  // namespace
}  // namespace megatron
