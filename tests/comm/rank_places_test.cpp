#include "megatron/comm/rank_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using ::testing::AllOf;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kA = "0000:1b:00.0", kB = "0000:43:00.0";

std::string mistake_of(std::vector<RankPlace> places) {
  try {
    RankPlaces(std::move(places)).require_a_gpu_each();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RankPlaces, AreRestoredFromTheirTexts) {
  for (const std::vector<std::string>& out_of_reach : {std::vector<std::string>{}, {kB}, {kA, kB}}) {
    const RankPlace place = RankPlace::parse(RankPlace{"id", "host one", kA, out_of_reach}.serialize());
    EXPECT_EQ(place.host, "id");
    EXPECT_EQ(place.host_name, "host one");
    EXPECT_EQ(place.gpu, kA);
    EXPECT_EQ(place.out_of_reach, out_of_reach);
  }
  EXPECT_THROW(RankPlace::parse("id\nhost"), CommError);
}

TEST(RankPlaces, NamesASharedGpuWithAFix) {
  EXPECT_THAT(mistake_of({{"x", "host-x", kA, {}}, {"x", "host-x", kB, {}}, {"x", "host-x", kA, {}}}),
              AllOf(HasSubstr("ranks 0, 2 have the same one: 0000:1b:00.0 of host host-x"), HasSubstr("torchrun"),
                    HasSubstr("mpirun"), HasSubstr("srun"), HasSubstr("--nproc-per-node")));
}

TEST(RankPlaces, GpusOfOneAddressOnTwoHostsAreTwo) {
  EXPECT_THAT(mistake_of({{"x", "node", kA, {}}, {"y", "node", kA, {}}, {"x", "node", kB, {}}}), IsEmpty());
}

TEST(RankPlaces, AssumePeerAccessUnlessAProcessDeniesIt) {
  const RankPlaces places({{"x", "", kA, {}}, {"x", "", kB, {kA}}, {"y", "", kA, {}}, {"x", "", "0000:44:00.0", {}}});
  EXPECT_FALSE(places.reach(0, 1)) << "the other one knows";
  EXPECT_FALSE(places.reach(1, 0));
  EXPECT_FALSE(places.reach(0, 2)) << "on two hosts";
  EXPECT_TRUE(places.reach(0, 3));
  EXPECT_TRUE(places.reach({0, 3}));
  EXPECT_FALSE(places.reach({0, 3, 1}));
  EXPECT_TRUE(places.reach({1, 3}));
}

TEST(RankPlaces, ThisHostHasAnIdentity) { EXPECT_THAT(host_identity(), Not(IsEmpty())); }

}  // namespace
}  // namespace megatron
