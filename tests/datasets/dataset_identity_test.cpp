// Cache names against those that Megatron 0.20.0 made (tests/golden/data/identity).
#include "megatron/datasets/dataset_identity.h"

#include <gtest/gtest.h>

#include "megatron/tokenizers/tokenizer_factory.h"
#include "tests/datasets/golden.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::list;

Split split_named(const std::string& name) {
  for (Split split : kSplits) {
    if (name_of(split) == name) return split;
  }
  throw std::invalid_argument(name);
}

TEST(DatasetIdentity, DescribesAndNamesGptDataSetsAsMegatron) {
  for (const json& expected : golden("identity/0.20.0.json")["gpt"]) {
    const json& arguments = expected["arguments"];
    GptDatasetIdentity identity;
    identity.dataset_path = arguments["dataset_path"].get<std::string>();
    if (!arguments["num_samples"].is_null()) identity.num_samples = arguments["num_samples"].get<int64_t>();
    identity.index_split = split_named(arguments["index_split"].get<std::string>());
    identity.random_seed = arguments["random_seed"].get<int64_t>();
    identity.sequence_length = arguments["sequence_length"].get<int64_t>();
    if (!arguments["split"].is_null()) {
      identity.split = arguments["split"].get<std::string>();
      identity.split_matrix = parse_split(*identity.split);
    }
    identity.tokenizer =
        make_tokenizer({.type = "NullTokenizer", .vocab_size = arguments["tokenizer"]["vocab_size"].get<int64_t>()})
            ->identity();
    EXPECT_EQ(identity.description(), expected["description"].get<std::string>());
    EXPECT_EQ(cache_stem(identity.description(), identity.class_name, identity.index_split),
              expected["stem"].get<std::string>());
  }
}

TEST(DatasetIdentity, DescribesAndNamesBlendsAsMegatron) {
  for (const json& expected : golden("identity/0.20.0.json")["blend"]) {
    BlendIdentity identity;
    const json description = json::parse(expected["description"].get<std::string>());
    for (const json& described : description["datasets"]) {
      GptDatasetIdentity member;
      member.dataset_path = described["dataset_path"].get<std::string>();
      member.num_samples = described["num_samples"].get<int64_t>();
      member.random_seed = described["random_seed"].get<int64_t>();
      member.sequence_length = described["sequence_length"].get<int64_t>();
      member.split = described["split"].get<std::string>();
      member.split_matrix = parse_split(*member.split);
      const int64_t vocab_size = std::stoll(described["tokenizer"]["vocab_size"].get<std::string>());
      member.tokenizer = make_tokenizer({.type = "NullTokenizer", .vocab_size = vocab_size})->identity();
      identity.datasets.push_back(member);
    }
    if (expected["size"].is_null()) {
      identity.weights = list<int64_t>(expected["weights"]);
    } else {
      identity.size = expected["size"].get<int64_t>();
      const std::vector<double> weights = list<double>(expected["weights"]);
      identity.weights =
          std::vector<double>{weights[0] / (weights[0] + weights[1]), weights[1] / (weights[0] + weights[1])};
    }
    EXPECT_EQ(cache_stem(identity.description(), "BlendedDataset", Split::kTrain), expected["stem"].get<std::string>())
        << identity.description();
  }
}

TEST(PythonJson, WritesFloatsAsPythonRepr) {
  // Python 3.11: repr(x).
  EXPECT_EQ(python_float(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(0), "0.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1.5e-7), "1.5e-07");
  EXPECT_EQ(python_float(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(python_float(1e-300), "1e-300");
}

TEST(PythonJson, EscapesAsPythonDoes) {
  PythonJson json;
  json.begin_array().end_array();
  EXPECT_EQ(json.text(), "[]");
  PythonJson text;
  text.string("a\"\\\n\t\x01\x7f/\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80\xff\xc3");
  // json.dumps of the same text; bytes that are not UTF-8 read as Python reads file names (surrogateescape).
  EXPECT_EQ(text.text(), R"("a\"\\\n\t\u0001\u007f/\u00e9\u65e5\ud83d\ude00\udcff\udcc3")");
}

}  // namespace
}  // namespace megatron
