#include "megatron/dist_checkpointing/pickle/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/pickle/pickle_opcodes.h"

namespace megatron::pickle {
namespace {

constexpr size_t kBatch = 1000;       // Python sets this many entries at once
constexpr int kMaxDepth = 1000;       // of nested objects; Python's own default limit
constexpr size_t kMinFrameBytes = 4;  // Python leaves out smaller frames

class Writer {
 public:
  explicit Writer(Protocol protocol) : protocol_(protocol) {}

  std::string run(const Object& root) {
    save(root);
    put(Opcode::kStop);
    std::string body = std::exchange(out_, {});
    put(Opcode::kProto);
    put_little_endian(static_cast<uint64_t>(protocol_), 1);
    if (protocol_ == Protocol::kFour && body.size() >= kMinFrameBytes) {
      put(Opcode::kFrame);
      put_little_endian(body.size(), 8);
    }
    return out_ + body;
  }

 private:
  void put(Opcode opcode) { out_.push_back(static_cast<char>(opcode)); }
  void put_little_endian(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }

  void save(const Object& object) {
    if (recall(object)) return;
    require<CheckpointError>(++depth_ <= kMaxDepth, "[pickle] objects are nested more than {} deep", kMaxDepth);
    switch (object.kind()) {
      case Kind::kNone:
        put(Opcode::kNone);
        break;
      case Kind::kBool:
        put(object.as_bool() ? Opcode::kNewTrue : Opcode::kNewFalse);
        break;
      case Kind::kInt:
        save_integer(object.as_int());
        break;
      case Kind::kBigInt:
        save_big_integer(object.as_bytes());
        break;
      case Kind::kFloat: {
        put(Opcode::kBinFloat);
        const auto bits = std::bit_cast<uint64_t>(object.as_float());
        for (int shift = 56; shift >= 0; shift -= 8) out_.push_back(static_cast<char>(bits >> shift));
        break;
      }
      case Kind::kPersistent:
        save(object.persistent_id());
        put(Opcode::kBinPersId);
        break;
      default:
        save_with_identity(object);
    }
    --depth_;
  }

  void save_with_identity(const Object& object) {
    switch (object.kind()) {
      case Kind::kString:
        save_text(object);
        break;
      case Kind::kBytes:
      case Kind::kByteArray:
        save_bytes(object);
        break;
      case Kind::kList:
        put(Opcode::kEmptyList);
        remember(object);
        save_items(object.items());
        break;
      case Kind::kDict:
        put(Opcode::kEmptyDict);
        remember(object);
        save_entries(object.entries());
        break;
      case Kind::kTuple:
        save_tuple(object);
        break;
      case Kind::kSet:
      case Kind::kFrozenSet:
        save_set(object);
        break;
      case Kind::kGlobal:
        save_global(object);
        break;
      default:
        save_instance(object);
    }
  }

  // References to what was written before.
  bool recall(const Object& object) {
    const auto found = memo_.find(&object);
    if (found == memo_.end()) return false;
    const bool is_short = found->second < 256;
    put(is_short ? Opcode::kBinGet : Opcode::kLongBinGet);
    put_little_endian(found->second, is_short ? 1 : 4);
    return true;
  }
  void remember(const Object& object) {
    const size_t number = memo_.size();
    require<CheckpointError>(memo_.emplace(&object, number).second, "[pickle] a {} contains itself",
                             name_of(object.kind()));
    if (protocol_ == Protocol::kFour) return put(Opcode::kMemoize);
    put(number < 256 ? Opcode::kBinPut : Opcode::kLongBinPut);
    put_little_endian(number, number < 256 ? 1 : 4);
  }

  void save_integer(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    if (value >= 0 && value <= 0xFF) {
      put(Opcode::kBinInt1);
      put_little_endian(bits, 1);
    } else if (value >= 0 && value <= 0xFFFF) {
      put(Opcode::kBinInt2);
      put_little_endian(bits, 2);
    } else if (value == static_cast<int32_t>(value)) {
      put(Opcode::kBinInt);
      put_little_endian(bits, 4);
    } else {
      std::string twos_complement;
      for (int i = 0; i < 8; ++i) twos_complement.push_back(static_cast<char>(bits >> (8 * i)));
      save_big_integer(twos_complement);
    }
  }
  void save_big_integer(std::string_view bytes) {
    const auto is_sign_extension = [](std::string_view value) {
      const bool negative = value[value.size() - 2] & 0x80;
      return value.back() == (negative ? '\xff' : '\0');
    };
    while (bytes.size() > 1 && is_sign_extension(bytes)) bytes.remove_suffix(1);
    const bool is_short = bytes.size() < 256;
    put(is_short ? Opcode::kLong1 : Opcode::kLong4);
    put_little_endian(bytes.size(), is_short ? 1 : 4);
    out_ += bytes;
  }

  void save_text(const Object& object) {
    const std::string& text = object.as_string();
    save_sized(text, protocol_ == Protocol::kFour, Opcode::kShortBinUnicode, Opcode::kBinUnicode, Opcode::kBinUnicode8);
    remember(object);
  }
  void save_bytes(const Object& object) {
    require<NotSupported>(protocol_ == Protocol::kFour && object.kind() == Kind::kBytes,
                          "[pickle] protocol {} cannot hold {}", static_cast<int>(protocol_), name_of(object.kind()));
    save_sized(object.as_bytes(), true, Opcode::kShortBinBytes, Opcode::kBinBytes, Opcode::kBinBytes8);
    remember(object);
  }
  void save_sized(std::string_view bytes, bool has_short, Opcode one, Opcode four, Opcode eight) {
    const int width = has_short && bytes.size() <= 0xFF ? 1 : bytes.size() <= 0xFFFFFFFF ? 4 : 8;
    require<NotSupported>(width < 8 || protocol_ == Protocol::kFour, "[pickle] protocol 2 cannot hold text of {} bytes",
                          bytes.size());
    put(width == 1 ? one : width == 4 ? four : eight);
    put_little_endian(bytes.size(), width);
    out_ += bytes;
  }

  void save_items(std::span<Object* const> items) {
    if (items.size() == 1) {
      save(*items[0]);
      return put(Opcode::kAppend);
    }
    for (size_t begin = 0; begin < items.size(); begin += kBatch) {
      put(Opcode::kMark);
      for (const Object* item : items.subspan(begin, std::min(kBatch, items.size() - begin))) save(*item);
      put(Opcode::kAppends);
    }
  }
  void save_entries(std::span<const Entry> entries) {
    const auto save_entry = [&](const Entry& entry) {
      save(*entry.key);
      save(*entry.value);
    };
    if (entries.size() == 1) {
      save_entry(entries[0]);
      return put(Opcode::kSetItem);
    }
    for (size_t begin = 0; begin < entries.size(); begin += kBatch) {
      put(Opcode::kMark);
      for (const Entry& entry : entries.subspan(begin, std::min(kBatch, entries.size() - begin))) save_entry(entry);
      put(Opcode::kSetItems);
    }
  }

  void save_tuple(const Object& object) {
    const auto items = object.items();
    if (items.empty()) return put(Opcode::kEmptyTuple);
    constexpr Opcode kSmall[] = {Opcode::kTuple1, Opcode::kTuple2, Opcode::kTuple3};
    const bool is_small = items.size() <= std::size(kSmall);
    if (!is_small) put(Opcode::kMark);
    for (const Object* item : items) save(*item);
    put(is_small ? kSmall[items.size() - 1] : Opcode::kTuple);
    remember(object);
  }
  void save_set(const Object& object) {
    require<NotSupported>(protocol_ == Protocol::kFour, "[pickle] protocol 2 cannot hold {}", name_of(object.kind()));
    const bool is_frozen = object.kind() == Kind::kFrozenSet;
    if (!is_frozen) {
      put(Opcode::kEmptySet);
      remember(object);
      if (object.items().empty()) return;
    }
    put(Opcode::kMark);
    for (const Object* item : object.items()) save(*item);
    put(is_frozen ? Opcode::kFrozenSet : Opcode::kAddItems);
    if (is_frozen) remember(object);
  }

  void save_global(const Object& object) {
    if (protocol_ == Protocol::kFour) {
      save(object.global_part(0));
      save(object.global_part(1));
      put(Opcode::kStackGlobal);
    } else {
      put(Opcode::kGlobal);
      out_ += fmt::format("{}\n{}\n", object.global_module(), object.global_name());
    }
    remember(object);
  }

  void save_instance(const Object& object) {
    const Instance& instance = object.instance();
    save(*instance.callable);
    save(*instance.arguments);
    if (instance.keywords) {
      require<NotSupported>(protocol_ == Protocol::kFour, "[pickle] protocol 2 cannot hold __newobj_ex__");
      save(*instance.keywords);
    }
    put(object.kind() == Kind::kReduce ? Opcode::kReduce : instance.keywords ? Opcode::kNewObjEx : Opcode::kNewObj);
    remember(object);
    save_items(instance.items);
    save_entries(instance.entries);
    if (instance.state == nullptr) return;
    save(*instance.state);
    put(Opcode::kBuild);
  }

  Protocol protocol_;
  std::string out_;
  std::unordered_map<const Object*, size_t> memo_;
  int depth_ = 0;
};

}  // namespace

std::string write_pickle(const Object& root, Protocol protocol) { return Writer(protocol).run(root); }

}  // namespace megatron::pickle
