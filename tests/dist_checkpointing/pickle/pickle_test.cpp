#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/pickle/pickle_reader.h"
#include "megatron/dist_checkpointing/pickle/pickle_text.h"
#include "megatron/dist_checkpointing/pickle/pickle_writer.h"
#include "tests/dist_checkpointing/tagged_json.h"

namespace megatron::pickle {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Pickle parse(std::string_view bytes) { return read_pickle(std::as_bytes(std::span(bytes)), "the test"); }

/// The objects that the fixture's pickles hold: those of plain.json that need no torch.
nlohmann::json plain_objects() {
  nlohmann::json all = read_golden_json("torch_save/plain.json"), kept;
  for (const auto& entry : all["dict"])
    if (entry[0] != "dtype" && entry[0] != "size" && entry[0] != "device") kept.push_back(entry);
  return {{"dict", kept}};
}

TEST(PickleReader, ReadsTheSameObjectsFromEveryProtocol) {
  const nlohmann::json expected = plain_objects();
  for (int protocol = 0; protocol <= 5; ++protocol) {
    const Pickle pickle = parse(read_golden(fmt::format("torch_save/plain_{}.pickle", protocol)));
    EXPECT_TRUE(matches(*pickle.root, expected, nullptr)) << "protocol " << protocol;
  }
}

TEST(PickleReader, KeepsSharedAndCyclicReferences) {
  const Pickle shared = parse(std::string_view("]q\0(]q\1h\1e.", 11));  // x = []; [x, x]
  EXPECT_EQ(shared.root->items()[0], shared.root->items()[1]);
  const Pickle cyclic = parse(std::string_view("]q\0h\0a.", 7));  // x = []; x.append(x)
  EXPECT_EQ(cyclic.root->items()[0], cyclic.root);
}

TEST(PickleReader, LeavesCallsAsData) {
  const Pickle pickle = parse("cos\nsystem\n\x8c\x0brm -rf /tmp\x85R.");
  EXPECT_TRUE(pickle.root->is_instance_of("os", "system"));
  EXPECT_EQ(pickle.root->instance().arguments->items()[0]->as_string(), "rm -rf /tmp");
}

TEST(PickleReader, TakesDepthFromTheHeapAndNotFromTheStack) {
  constexpr int kDepth = 1'000'000;
  const Pickle pickle = parse(std::string(kDepth, ']') + std::string(kDepth - 1, 'a') + ".");
  EXPECT_EQ(pickle.root->items().size(), 1u);
  EXPECT_THAT([&] { write_pickle(*pickle.root, Protocol::kFour); },
              ThrowsMessage<CheckpointError>(HasSubstr("nested more than 1000 deep")));
}

TEST(PickleReader, NamesThePlaceOfTheDamage) {
  const std::vector<std::pair<std::string_view, const char*>> table = {
      {"", "byte 0: 1 bytes are wanted, 0 are left"},
      {"N", "byte 1: 1 bytes are wanted"},
      {".", "byte 0: the stack is empty"},
      {"NN.", "objects are left over"},
      {"N.N", "1 bytes follow the end"},
      {"\x80\x06N.", "protocol 6 is unknown"},
      {"h\x07.", "object 7 was never stored"},
      {"X\xff\xff\xff\xffx.", "4294967295 bytes are wanted"},
      {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "18446744073709551615 bytes are wanted"},
      {"(NNa.", "items are added to a None"},
      {"}(Nu.", "a key has no value"},
      {"](NNu.", "keys are set in a list"},
      {"NNb.", "a None gets a state"},
      {"t.", "there is no mark"},
      {"(cos\nsystem", "a line has no end"},
      {"KaKb\x93.", "a global name is not text"},
      {"cos\nsystem\nNR.", "arguments are a None"},
      {"\x82\x01.", "opcode 0x82 is not supported"},
      {"I12x\n.", "\"12x\" is not a 64-bit number"},
  };
  for (const auto& [bytes, message] : table)
    EXPECT_THAT([&] { parse(bytes); }, ThrowsMessage<CheckpointError>(HasSubstr(message)))
        << ::testing::PrintToString(bytes);
}

/// Whatever byte is wrong, the reader gives objects or an error and touches no memory outside.
TEST(PickleReader, SurvivesEveryTruncationAndManyFlips) {
  for (const std::string& name :
       {std::string("torch_save/plain_0.pickle"), std::string("torch_save/plain_2.pickle"),
        std::string("torch_save/plain_5.pickle"), saved_folder("lm019/llama_tp2") + ".metadata"}) {
    const std::string bytes = read_golden(name);
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_THROW(parse(std::string_view(bytes).substr(0, length)), CheckpointError) << name << " cut at " << length;
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      try {
        parse(flipped);
      } catch (const CheckpointError&) {
      }
    }
  }
}

TEST(PickleWriter, GivesPythonsBytes) {
  for (const auto& [name, protocol] : {std::pair<std::string, Protocol>("torch_save/plain_4.pickle", Protocol::kFour),
                                       {saved_folder("lm019/llama_tp2") + ".metadata", Protocol::kFour},
                                       {saved_folder("lm019/moe_ep2") + ".metadata", Protocol::kFour},
                                       {"dcp/nested/.metadata", Protocol::kFour},
                                       {"torch_save/plain_2.pickle", Protocol::kTwo}}) {
    const std::string bytes = read_golden(name);
    EXPECT_TRUE(same_bytes(write_pickle(*parse(bytes).root, protocol), bytes)) << name;
  }
}

TEST(PickleWriter, RoundTripsNumbersAtTheEdgesOfTheirEncodings) {
  using Limits = std::numeric_limits<int64_t>;
  for (const int64_t value : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{65535}, int64_t{65536}, int64_t{-1},
                              int64_t{INT32_MAX}, int64_t{INT32_MIN}, int64_t{INT32_MAX} + 1, int64_t{INT32_MIN} - 1,
                              int64_t{1} << 39, -(int64_t{1} << 39), Limits::max(), Limits::min()}) {
    Graph graph;
    EXPECT_EQ(parse(write_pickle(graph.integer(value), Protocol::kTwo)).root->as_int(), value);
  }
  Graph graph;
  EXPECT_EQ(write_pickle(graph.integer(INT64_C(1) << 31), Protocol::kTwo),
            std::string("\x80\2\x8a\5\0\0\0\x80\0.", 10));
  const double smallest = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(parse(write_pickle(graph.real(smallest), Protocol::kFour)).root->as_float(), smallest);
}

TEST(PickleWriter, WritesMoreEntriesThanOneBatch) {
  for (const int count : {1, 999, 1000, 1001, 2500}) {
    Graph graph;
    Object& dict = graph.dict();
    for (int i = 0; i < count; ++i) graph.set(dict, fmt::format("key {}", i), graph.list({&graph.integer(i)}));
    const Pickle read = parse(write_pickle(dict, Protocol::kFour));
    ASSERT_EQ(read.root->entries().size(), static_cast<size_t>(count));
    EXPECT_EQ(read.root->at(fmt::format("key {}", count - 1)).items()[0]->as_int(), count - 1);
  }
}

TEST(PickleWriter, RefusesWhatTheProtocolCannotHold) {
  Graph graph;
  EXPECT_THROW(write_pickle(graph.add(Kind::kBytes, std::string("ab")), Protocol::kTwo), NotSupported);
  EXPECT_THROW(write_pickle(graph.add(Kind::kSet, std::vector<Object*>{}), Protocol::kTwo), NotSupported);
  Object& tuple = graph.tuple({&graph.none()});
  tuple.mutable_items()[0] = &tuple;
  EXPECT_THROW(write_pickle(tuple, Protocol::kTwo), CheckpointError);
}

TEST(PickleObject, SaysWhatItIsWhenAskedForSomethingElse) {
  Graph graph;
  EXPECT_THAT([&] { graph.none().as_int(); }, ThrowsMessage<CheckpointError>("[pickle] int expected, found None"));
  EXPECT_THAT([&] { graph.text("x").as_bytes(); },
              ThrowsMessage<CheckpointError>("[pickle] bytes expected, found str"));
  EXPECT_THAT([&] { graph.dict().at("step"); }, ThrowsMessage<CheckpointError>("[pickle] dict has no entry \"step\""));
  EXPECT_EQ(graph.integer(3).as_float(), 3.0);
}

TEST(PickleObject, FindsAttributesAndTheLastOfEqualKeys) {
  Graph graph;
  Object& args = graph.instance(graph.global("argparse", "Namespace"), &graph.dict());
  graph.set(args, "lr", graph.real(0.1));
  graph.set(args, "lr", graph.real(0.2));
  EXPECT_TRUE(args.is_instance_of("argparse", "Namespace"));
  EXPECT_EQ(args.at("lr").as_float(), 0.2);
  EXPECT_EQ(args.find("wd"), nullptr);
}

TEST(PickleText, DecodesEscapesAndDecimals) {
  EXPECT_EQ(decode_raw_unicode_escape("h\xe9llo \\u4e2d\\U0001f600\\n"), "h\u00e9llo \u4e2d\U0001f600\\n");
  EXPECT_EQ(decode_decimal("128L"), std::string("\x80\0", 2));
  EXPECT_EQ(decode_decimal("-128"), "\x80");
  EXPECT_EQ(decode_decimal("-129"), "\x7f\xff");
  EXPECT_EQ(decode_decimal("0"), std::string(1, '\0'));
  EXPECT_THROW(decode_decimal("12a"), CheckpointError);
  EXPECT_THROW(decode_decimal(std::string(5000, '1')), CheckpointError);
  EXPECT_THROW(decode_raw_unicode_escape("\\u12"), CheckpointError);
}

}  // namespace
}  // namespace megatron::pickle
