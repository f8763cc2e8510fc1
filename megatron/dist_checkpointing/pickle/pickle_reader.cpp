#include "megatron/dist_checkpointing/pickle/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/pickle/pickle_opcodes.h"
#include "megatron/dist_checkpointing/pickle/pickle_text.h"

namespace megatron::pickle {
namespace {

/// The pickle machine: a stack, marks on it, and a memo of objects by number.
class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view source, Graph& graph)
      : bytes_(bytes), source_(source), graph_(graph) {}

  Object* run() {
    for (;;) {
      opcode_at_ = at_;
      const auto opcode = static_cast<Opcode>(little_endian(1));
      if (opcode == Opcode::kStop) break;
      const bool known = run_constant(opcode) || run_text(opcode) || run_stack(opcode) || run_memo(opcode) ||
                         run_container(opcode) || run_object(opcode);
      if (!known) fail("opcode {:#04x} is not supported", static_cast<unsigned>(opcode));
    }
    Object* root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("objects are left over at the end");
    if (at_ != bytes_.size()) fail("{} bytes follow the end", bytes_.size() - at_);
    return root;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw CheckpointError(
        fmt::format("[pickle] {} is damaged at byte {}: {}. Restore the file or load another checkpoint.", source_,
                    opcode_at_, fmt::format(format, std::forward<Args>(args)...)));
  }

  // Bytes of the file.
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("{} bytes are wanted, {} are left", count, bytes_.size() - at_);
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += static_cast<size_t>(count);
    return {begin, static_cast<size_t>(count)};
  }
  uint64_t little_endian(int num_bytes) {
    const std::string_view raw = take(static_cast<uint64_t>(num_bytes));
    uint64_t value = 0;
    for (int i = 0; i < num_bytes; ++i) value |= uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return value;
  }
  std::string_view take_line() {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data());
    const auto* newline = std::find(begin + at_, begin + bytes_.size(), '\n');
    if (newline == begin + bytes_.size()) fail("a line has no end");
    const std::string_view line = take(static_cast<uint64_t>(newline - begin) - at_);
    ++at_;
    return line;
  }
  int64_t parse_decimal(std::string_view line) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc() || end != line.data() + line.size()) fail("\"{}\" is not a 64-bit number", line);
    return value;
  }

  // The stack.
  void push(Object& object) { stack_.push_back(&object); }
  Object& top() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return *stack_.back();
  }
  Object* pop() {
    Object* object = &top();
    stack_.pop_back();
    return object;
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<Object*> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<Object*> objects(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return objects;
  }
  std::vector<Object*> pop_count(size_t count) {
    std::vector<Object*> objects(count);
    for (size_t i = count; i-- > 0;) objects[i] = pop();
    return objects;
  }

  bool run_constant(Opcode opcode);
  bool run_text(Opcode opcode);
  bool run_stack(Opcode opcode);
  bool run_memo(Opcode opcode);
  bool run_container(Opcode opcode);
  bool run_object(Opcode opcode);

  void push_integer(std::string_view twos_complement);
  void append(std::vector<Object*> objects, Kind kind);
  void set_entries(const std::vector<Object*>& objects);
  void remember(uint64_t number) { memo_[number] = &top(); }
  void recall(uint64_t number);
  void push_global(Object* module, Object* name);
  void push_instance(Kind kind, bool has_keywords);
  void build();

  std::span<const std::byte> bytes_;
  std::string_view source_;
  Graph& graph_;
  size_t at_ = 0, opcode_at_ = 0;
  std::vector<Object*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Object*> memo_;
};

void Machine::push_integer(std::string_view twos_complement) {
  if (twos_complement.size() > sizeof(int64_t)) return push(graph_.add(Kind::kBigInt, std::string(twos_complement)));
  const bool negative = !twos_complement.empty() && (twos_complement.back() & 0x80);
  uint64_t value = negative ? ~uint64_t{0} : 0;
  std::memcpy(&value, twos_complement.data(), twos_complement.size());
  push(graph_.integer(static_cast<int64_t>(value)));
}

bool Machine::run_constant(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNone:
      push(graph_.none());
      return true;
    case Opcode::kNewTrue:
    case Opcode::kNewFalse:
      push(graph_.boolean(opcode == Opcode::kNewTrue));
      return true;
    case Opcode::kBinInt:
      push(graph_.integer(static_cast<int32_t>(little_endian(4))));
      return true;
    case Opcode::kBinInt1:
      push(graph_.integer(static_cast<int64_t>(little_endian(1))));
      return true;
    case Opcode::kBinInt2:
      push(graph_.integer(static_cast<int64_t>(little_endian(2))));
      return true;
    case Opcode::kLong1:
      push_integer(take(little_endian(1)));
      return true;
    case Opcode::kLong4:
      push_integer(take(little_endian(4)));
      return true;
    case Opcode::kBinFloat: {
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = (bits << 8) | static_cast<unsigned char>(byte);
      push(graph_.real(std::bit_cast<double>(bits)));
      return true;
    }
    default:
      return false;
  }
}

bool Machine::run_text(Opcode opcode) {
  struct Sized {
    Opcode opcode;
    Kind kind;
    int size_bytes;
  };
  constexpr Sized kSized[] = {
      {Opcode::kShortBinUnicode, Kind::kString, 1}, {Opcode::kBinUnicode, Kind::kString, 4},
      {Opcode::kBinUnicode8, Kind::kString, 8},     {Opcode::kShortBinBytes, Kind::kBytes, 1},
      {Opcode::kBinBytes, Kind::kBytes, 4},         {Opcode::kBinBytes8, Kind::kBytes, 8},
      {Opcode::kByteArray8, Kind::kByteArray, 8},   {Opcode::kShortBinString, Kind::kString, 1},  // str of Python 2
      {Opcode::kBinString, Kind::kString, 4}};
  if (const auto* sized = std::ranges::find(kSized, opcode, &Sized::opcode); sized != std::end(kSized)) {
    push(graph_.add(sized->kind, std::string(take(little_endian(sized->size_bytes)))));
    return true;
  }
  switch (opcode) {
    case Opcode::kUnicode:
      push(graph_.text(decode_raw_unicode_escape(take_line())));
      return true;
    case Opcode::kInt: {
      const std::string_view line = take_line();  // bool is written as 00 and 01
      push(line == "00" || line == "01" ? graph_.boolean(line == "01") : graph_.integer(parse_decimal(line)));
      return true;
    }
    case Opcode::kLong:
      push_integer(decode_decimal(take_line()));
      return true;
    case Opcode::kFloat:
      push(graph_.real(decode_float(take_line())));
      return true;
    default:
      return false;
  }
}

bool Machine::run_stack(Opcode opcode) {
  switch (opcode) {
    case Opcode::kProto:
      if (const auto protocol = little_endian(1); protocol > 5) fail("protocol {} is unknown", protocol);
      return true;
    case Opcode::kFrame:
      if (const auto length = little_endian(8); length > bytes_.size() - at_) fail("a frame is longer than the file");
      return true;
    case Opcode::kMark:
      marks_.push_back(stack_.size());
      return true;
    case Opcode::kPop:
      if (stack_.size() > floor())
        stack_.pop_back();
      else
        pop_to_mark();
      return true;
    case Opcode::kPopMark:
      pop_to_mark();
      return true;
    case Opcode::kDup:
      push(top());
      return true;
    default:
      return false;
  }
}

void Machine::recall(uint64_t number) {
  const auto found = memo_.find(number);
  if (found == memo_.end()) fail("object {} was never stored", number);
  push(*found->second);
}

bool Machine::run_memo(Opcode opcode) {
  switch (opcode) {
    case Opcode::kMemoize:
      remember(memo_.size());
      return true;
    case Opcode::kBinPut:
      remember(little_endian(1));
      return true;
    case Opcode::kLongBinPut:
      remember(little_endian(4));
      return true;
    case Opcode::kPut:
      remember(static_cast<uint64_t>(parse_decimal(take_line())));
      return true;
    case Opcode::kBinGet:
      recall(little_endian(1));
      return true;
    case Opcode::kLongBinGet:
      recall(little_endian(4));
      return true;
    case Opcode::kGet:
      recall(static_cast<uint64_t>(parse_decimal(take_line())));
      return true;
    default:
      return false;
  }
}

void Machine::append(std::vector<Object*> objects, Kind kind) {
  Object& target = top();
  if (target.kind() != kind && !target.is_instance()) fail("items are added to a {}", name_of(target.kind()));
  auto& items = target.mutable_items();
  items.insert(items.end(), objects.begin(), objects.end());
}

void Machine::set_entries(const std::vector<Object*>& objects) {
  if (objects.size() % 2 != 0) fail("a key has no value");
  Object& target = top();
  if (target.kind() != Kind::kDict && !target.is_instance()) fail("keys are set in a {}", name_of(target.kind()));
  auto& entries = target.mutable_entries();
  for (size_t i = 0; i < objects.size(); i += 2) entries.push_back({objects[i], objects[i + 1]});
}

bool Machine::run_container(Opcode opcode) {
  switch (opcode) {
    case Opcode::kEmptyList:
      push(graph_.list({}));
      return true;
    case Opcode::kEmptyTuple:
      push(graph_.tuple({}));
      return true;
    case Opcode::kEmptyDict:
      push(graph_.dict());
      return true;
    case Opcode::kEmptySet:
      push(graph_.add(Kind::kSet, std::vector<Object*>{}));
      return true;
    case Opcode::kTuple1:
    case Opcode::kTuple2:
    case Opcode::kTuple3:
      push(graph_.tuple(pop_count(static_cast<size_t>(opcode) - static_cast<size_t>(Opcode::kTuple1) + 1)));
      return true;
    case Opcode::kTuple:
      push(graph_.tuple(pop_to_mark()));
      return true;
    case Opcode::kList:
      push(graph_.list(pop_to_mark()));
      return true;
    case Opcode::kFrozenSet:
      push(graph_.add(Kind::kFrozenSet, pop_to_mark()));
      return true;
    case Opcode::kDict: {
      const auto objects = pop_to_mark();
      push(graph_.dict());
      set_entries(objects);
      return true;
    }
    case Opcode::kAppend:
      append(pop_count(1), Kind::kList);
      return true;
    case Opcode::kAppends:
      append(pop_to_mark(), Kind::kList);
      return true;
    case Opcode::kAddItems:
      append(pop_to_mark(), Kind::kSet);
      return true;
    case Opcode::kSetItem:
      set_entries(pop_count(2));
      return true;
    case Opcode::kSetItems:
      set_entries(pop_to_mark());
      return true;
    default:
      return false;
  }
}

void Machine::push_global(Object* module, Object* name) {
  if (module->kind() != Kind::kString || name->kind() != Kind::kString) fail("a global name is not text");
  push(graph_.add(Kind::kGlobal, std::vector<Object*>{module, name}));
}

void Machine::push_instance(Kind kind, bool has_keywords) {
  auto instance = std::make_unique<Instance>();
  if (has_keywords) instance->keywords = pop();
  instance->arguments = pop();
  instance->callable = pop();
  if (instance->arguments->kind() != Kind::kTuple) fail("arguments are a {}", name_of(instance->arguments->kind()));
  if (has_keywords && instance->keywords->kind() != Kind::kDict) fail("keyword arguments are no dict");
  push(graph_.add(kind, std::move(instance)));
}

void Machine::build() {
  Object* state = pop();
  Object& target = top();
  if (!target.is_instance()) fail("a {} gets a state", name_of(target.kind()));
  if (target.instance().state != nullptr) fail("an object gets a second state");
  target.mutable_instance().state = state;
}

bool Machine::run_object(Opcode opcode) {
  switch (opcode) {
    case Opcode::kGlobal: {
      Object& module = graph_.text(std::string(take_line()));
      push_global(&module, &graph_.text(std::string(take_line())));
      return true;
    }
    case Opcode::kStackGlobal: {
      Object* name = pop();
      push_global(pop(), name);
      return true;
    }
    case Opcode::kReduce:
      push_instance(Kind::kReduce, false);
      return true;
    case Opcode::kNewObj:
      push_instance(Kind::kNewObject, false);
      return true;
    case Opcode::kNewObjEx:
      push_instance(Kind::kNewObject, true);
      return true;
    case Opcode::kBuild:
      build();
      return true;
    case Opcode::kBinPersId:
      push(graph_.persistent(*pop()));
      return true;
    default:
      return false;
  }
}

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, std::string_view source) {
  Pickle pickle;
  pickle.root = Machine(bytes, source, pickle.graph).run();
  return pickle;
}

}  // namespace megatron::pickle
