#include "titanium/checkpoint/torch_file/pickle_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"

namespace titanium::checkpoint {
namespace {

constexpr std::string_view kRemedy = "The file is damaged, incomplete or not a checkpoint: fetch or write it again.";

// Everything that a pickle may name.
constexpr auto kGlobals = std::to_array<std::string_view>({
    "__builtin__.bytes",
    "__builtin__.getattr",
    "_codecs.encode",
    "builtins.bytes",
    "builtins.getattr",
    "collections.OrderedDict",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.PureWindowsPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "torch.BFloat16Storage",
    "torch.BoolStorage",
    "torch.ByteStorage",
    "torch.CharStorage",
    "torch.ComplexDoubleStorage",
    "torch.ComplexFloatStorage",
    "torch.DoubleStorage",
    "torch.FloatStorage",
    "torch.HalfStorage",
    "torch.IntStorage",
    "torch.LongStorage",
    "torch.ShortStorage",
    "torch.Size",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch.bfloat16",
    "torch.bool",
    "torch.complex128",
    "torch.complex64",
    "torch.device",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",  // torch before 2.3
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",     // torch before 2.3
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.filesystem._StoragePrefix",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.float16",
    "torch.float32",
    "torch.float64",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.int16",
    "torch.int32",
    "torch.int64",
    "torch.int8",
    "torch.serialization._get_layout",
    "torch.storage.UntypedStorage",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch.uint8",
});
static_assert(std::ranges::is_sorted(kGlobals));

// Bytes are spelled as a text of the characters 0 to 255, here in UTF-8. Nothing for another text.
std::optional<std::string> latin1(const std::string& utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto code = static_cast<unsigned char>(utf8[i]);
    if (code < 0x80) {
      bytes += utf8[i];
    } else {
      if ((code != 0xc2 && code != 0xc3) || i + 1 == utf8.size() || (utf8[i + 1] & 0xc0) != 0x80) return std::nullopt;
      bytes += static_cast<char>((code & 3) << 6 | (utf8[++i] & 0x3f));
    }
  }
  return bytes;
}

}  // namespace

// The stack machine that a pickle is written for.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& what, const PickleLimits& limits)
      : bytes_(bytes), what_(what), limits_(limits) {}
  ~PickleMachine();
  PickleMachine(const PickleMachine&) = delete;
  PickleMachine& operator=(const PickleMachine&) = delete;

  // `followed`: other bytes may follow the pickle.
  PickleValue run(bool followed);
  size_t size() const { return position_; }  // of the pickle, after `run`

 private:
  using Kind = PickleValue::Kind;
  using Items = PickleValue::Items;
  struct Extent {
    size_t size = 1;  // values and bytes of texts
    int depth = 1;
  };

  template <typename... Args>
  void check(bool good, fmt::format_string<Args...> format, Args&&... args) const {
    if (good) return;
    throw Error(fmt::format("{}: pickle, byte {}: {}. {}", what_, opcode_at_,
                            fmt::format(format, std::forward<Args>(args)...), kRemedy));
  }

  std::span<const std::byte> take(uint64_t length);
  template <typename T>
  T number();
  std::string text(uint64_t length);
  std::string line();

  void push(PickleValue value);
  PickleValue pop();
  PickleValue& top();
  Items pop_to_mark();

  void step(uint8_t opcode);
  bool literal(uint8_t opcode);
  bool container(uint8_t opcode);
  bool memo(uint8_t opcode);
  bool object(uint8_t opcode);

  PickleValue integer(uint64_t length);
  void push_tuple(size_t size);
  void extend(Kind kind, Items items);
  void remember(size_t index);
  PickleValue recall(size_t index);
  void push_global(const std::string& module, const std::string& name);
  void reduce(bool is_call);
  void build();
  // The address that all values sharing one container have in common; a copy of a value shares its container.
  static const void* identity(const PickleValue& value);
  Extent extent(const PickleValue& value, int depth);
  void add_extent(const PickleValue& child, int depth, Extent& total);

  std::span<const std::byte> bytes_;
  const std::string& what_;
  PickleLimits limits_;
  size_t position_ = 0;
  size_t opcode_at_ = 0;
  Items stack_;
  std::vector<size_t> marks_;
  Items memo_;
  Items containers_;                                 // all that were made: see the destructor
  size_t encoded_ = 0;                               // bytes that were made of texts
  std::unordered_map<const void*, Extent> extents_;  // of the containers of the result
};

// Containers outside the result may hold themselves or be nested so deep that destroying one would overflow the stack.
// So each is emptied while this list still holds all others.
PickleMachine::~PickleMachine() {
  for (const PickleValue& value : containers_) {
    if (extents_.contains(identity(value))) continue;
    if (value.kind_ == Kind::kObject) {
      auto& object = *std::get<std::shared_ptr<PickleValue::Object>>(value.data_);
      object.arguments.reset();
      object.state.reset();
    } else {
      value.children()->clear();
    }
  }
}

const void* PickleMachine::identity(const PickleValue& value) {
  if (value.kind_ == Kind::kObject) return std::get<std::shared_ptr<PickleValue::Object>>(value.data_).get();
  return value.children();
}

std::span<const std::byte> PickleMachine::take(uint64_t length) {
  const size_t rest = bytes_.size() - position_;
  check(length <= rest, "{} bytes are announced, but {} follow", length, rest);
  const auto taken = bytes_.subspan(position_, length);
  position_ += length;
  return taken;
}

template <typename T>
T PickleMachine::number() {
  T value;
  std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
  return value;
}

std::string PickleMachine::text(uint64_t length) {
  const auto taken = take(length);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

std::string PickleMachine::line() {
  const auto rest = bytes_.subspan(position_);
  const auto end = std::ranges::find(rest, std::byte{'\n'});
  check(end != rest.end(), "a name does not end");
  std::string found = text(static_cast<uint64_t>(end - rest.begin()));
  ++position_;
  return found;
}

void PickleMachine::push(PickleValue value) {
  if (value.children() != nullptr) containers_.push_back(value);
  stack_.push_back(std::move(value));
}

PickleValue& PickleMachine::top() {
  const size_t bottom = marks_.empty() ? 0 : marks_.back();
  check(stack_.size() > bottom, "a value is missing");
  return stack_.back();
}

PickleValue PickleMachine::pop() {
  PickleValue value = std::move(top());
  stack_.pop_back();
  return value;
}

PickleValue::Items PickleMachine::pop_to_mark() {
  check(!marks_.empty(), "the beginning of a list is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  marks_.pop_back();
  Items items(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
  stack_.erase(begin, stack_.end());
  return items;
}

PickleValue PickleMachine::run(bool followed) {
  check(bytes_.size() >= 2 && bytes_[0] == std::byte{0x80}, "no pickle of protocol 2 or later begins here");
  while (true) {
    opcode_at_ = position_;
    const auto opcode = number<uint8_t>();
    if (opcode == '.') break;
    step(opcode);
  }
  PickleValue result = pop();
  const size_t more = bytes_.size() - position_;
  check(followed || more == 0, "{} bytes follow the end", more);
  bytes_ = bytes_.first(position_);
  stack_.clear();
  memo_.clear();
  try {
    extent(result, 0);
  } catch (const Error&) {
    extents_.clear();  // nothing is kept
    throw;
  }
  return result;
}

void PickleMachine::step(uint8_t opcode) {
  const bool known = literal(opcode) || container(opcode) || memo(opcode) || object(opcode);
  check(known, "opcode 0x{:02x} is none that checkpoints use", opcode);
}

PickleValue PickleMachine::integer(uint64_t length) {
  check(length <= sizeof(int64_t), "an integer of {} bytes is beyond 64 bits", length);
  const auto taken = take(length);
  // Sign extension: the missing high bytes repeat the sign.
  int64_t value = !taken.empty() && (taken.back() & std::byte{0x80}) != std::byte{0} ? -1 : 0;
  std::memcpy(&value, taken.data(), taken.size());
  return value;
}

bool PickleMachine::literal(uint8_t opcode) {
  switch (opcode) {
    case 'N':
      return push({}), true;
    case 0x88:
      return push(true), true;
    case 0x89:
      return push(false), true;
    case 'K':
      return push(number<uint8_t>()), true;
    case 'M':
      return push(number<uint16_t>()), true;
    case 'J':
      return push(number<int32_t>()), true;
    case 0x8a:
      return push(integer(number<uint8_t>())), true;
    case 0x8b:
      return push(integer(number<uint32_t>())), true;
    case 'G':
      return push(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()))), true;
    case 'U':  // a str of Python 2
    case 0x8c:
      return push(text(number<uint8_t>())), true;
    case 'T':
    case 'X':
      return push(text(number<uint32_t>())), true;
    case 0x8d:
      return push(text(number<uint64_t>())), true;
    case 'C':
      return push(PickleValue::bytes(text(number<uint8_t>()))), true;
    case 'B':
      return push(PickleValue::bytes(text(number<uint32_t>()))), true;
    case 0x8e:
    case 0x96:  // a bytearray
      return push(PickleValue::bytes(text(number<uint64_t>()))), true;
    default:
      return false;
  }
}

void PickleMachine::push_tuple(size_t size) {
  Items items(size);
  for (size_t i = size; i > 0; --i) items[i - 1] = pop();
  push(PickleValue::tuple(std::move(items)));
}

void PickleMachine::extend(Kind kind, Items items) {
  const PickleValue& target = top();
  check(target.kind() == kind, "items belong to no {}", kind == Kind::kList ? "list" : "dict");
  check(kind == Kind::kList || items.size() % 2 == 0, "a key has no value");
  Items& existing = *target.children();
  existing.insert(existing.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
}

bool PickleMachine::container(uint8_t opcode) {
  switch (opcode) {
    case '(':
      return marks_.push_back(stack_.size()), true;
    case '0':
      return pop(), true;
    case '1':
      return pop_to_mark(), true;
    case '2':
      return push(PickleValue(top())), true;
    case ']':
      return push(PickleValue::list({})), true;
    case '}':
      return push(PickleValue::dict({})), true;
    case ')':
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(opcode == ')' ? 0 : opcode - 0x84U), true;
    case 't':
      return push(PickleValue::tuple(pop_to_mark())), true;
    case 'l':
      return push(PickleValue::list(pop_to_mark())), true;
    case 'd': {
      Items items = pop_to_mark();
      push(PickleValue::dict({}));
      return extend(Kind::kDict, std::move(items)), true;
    }
    case 'a': {
      Items items = {pop()};
      return extend(Kind::kList, std::move(items)), true;
    }
    case 's': {
      PickleValue value = pop();
      Items items = {pop(), std::move(value)};
      return extend(Kind::kDict, std::move(items)), true;
    }
    case 'e':
      return extend(Kind::kList, pop_to_mark()), true;
    case 'u':
      return extend(Kind::kDict, pop_to_mark()), true;
    default:
      return false;
  }
}

void PickleMachine::remember(size_t index) {
  // Picklers number consecutively. A gap would let a few bytes claim a lot of memory.
  check(index <= memo_.size(), "memo entry {} follows entry {}", index, memo_.size());
  if (index == memo_.size()) {
    memo_.push_back(top());
  } else {
    memo_[index] = top();
  }
}

PickleValue PickleMachine::recall(size_t index) {
  check(index < memo_.size(), "memo entry {} is used, but there are {}", index, memo_.size());
  return memo_[index];
}

bool PickleMachine::memo(uint8_t opcode) {
  switch (opcode) {
    case 'q':
      return remember(number<uint8_t>()), true;
    case 'r':
      return remember(number<uint32_t>()), true;
    case 0x94:
      return remember(memo_.size()), true;
    case 'h':
      return stack_.push_back(recall(number<uint8_t>())), true;
    case 'j':
      return stack_.push_back(recall(number<uint32_t>())), true;
    default:
      return false;
  }
}

void PickleMachine::push_global(const std::string& module, const std::string& name) {
  const std::string full = module + "." + name;
  check(std::ranges::binary_search(kGlobals, full),
        "it names {}, which is none of the classes that checkpoints consist of, so it is refused and nothing was run",
        printable(full));
  push(PickleValue::global(module, name));
}

void PickleMachine::reduce(bool is_call) {
  const PickleValue arguments = pop();
  const PickleValue callable = pop();
  check(callable.kind() == Kind::kGlobal && arguments.kind() == Kind::kTuple, "something else than a class is called");
  const std::string_view name = callable.type_name();
  const auto given = arguments.items();
  if (name == "_codecs.encode") {
    check(given.size() == 2 && given[0].kind() == Kind::kString && given[1] == PickleValue("latin1"),
          "text is encoded in another way than latin1");
    auto bytes = latin1(given[0].as_string());
    check(bytes.has_value(), "a text that stands for bytes has characters beyond 255");
    encoded_ += bytes->size();
    check(encoded_ <= position_, "texts that stand for bytes are used again and again");
    push(PickleValue::bytes(std::move(*bytes)));
  } else if (name == "builtins.bytes" || name == "__builtin__.bytes") {
    check(given.empty(), "bytes are made of something else than nothing");
    push(PickleValue::bytes(""));
  } else if (name == "builtins.getattr" || name == "__builtin__.getattr") {
    // How Python 3.11.0 to 3.11.3 writes a member of an enumeration. Others write the call of its class.
    check(
        given.size() == 2 && given[0].type_name().ends_with("MEM_FORMAT_ENCODING") && given[1].kind() == Kind::kString,
        "getattr takes something else than a member of an enumeration");
    push({Kind::kObject, PickleValue::Object{std::string(given[0].type_name()),
                                             std::make_shared<Items>(Items{given[1]}), nullptr, is_call}});
  } else if (name == "torch.Size") {
    check(given.size() == 1 && given[0].kind() == Kind::kTuple, "torch.Size is made of something else than a tuple");
    stack_.push_back(given[0]);
  } else if (name == "collections.OrderedDict") {
    check(given.empty(), "OrderedDict is made of something else than nothing");
    push(PickleValue::dict({}));
  } else {
    const auto& shared = std::get<std::shared_ptr<Items>>(arguments.data_);  // a tuple never changes
    push({Kind::kObject, PickleValue::Object{std::string(name), shared, nullptr, is_call}});
  }
}

void PickleMachine::build() {
  PickleValue state = pop();
  const PickleValue& target = top();
  // Attributes of an OrderedDict, such as the versions of modules in a state dict, are not part of its content.
  if (target.kind() == Kind::kDict) return;
  check(target.kind() == Kind::kObject, "a state belongs to no object");
  auto shared = state.is_none() ? nullptr : std::make_shared<PickleValue>(std::move(state));
  std::get<std::shared_ptr<PickleValue::Object>>(target.data_)->state = std::move(shared);
}

bool PickleMachine::object(uint8_t opcode) {
  switch (opcode) {
    case 0x80: {
      const auto protocol = number<uint8_t>();
      check(protocol >= 2 && protocol <= 5, "protocol {} is not one of 2 to 5", protocol);
      return true;
    }
    case 0x95: {
      const auto length = number<uint64_t>();
      check(length <= bytes_.size() - position_, "a frame of {} bytes reaches beyond the end", length);
      return true;
    }
    case 'c': {
      const std::string module = line();
      return push_global(module, line()), true;
    }
    case 0x93: {
      const PickleValue name = pop(), module = pop();
      check(name.kind() == Kind::kString && module.kind() == Kind::kString, "a class has no name");
      return push_global(module.as_string(), name.as_string()), true;
    }
    case 'R':
      return reduce(true), true;
    case 0x81:
      return reduce(false), true;
    case 'b':
      return build(), true;
    case 'Q':
      return push(PickleValue::persistent_id(pop())), true;
    default:
      return false;
  }
}

void PickleMachine::add_extent(const PickleValue& child, int depth, Extent& total) {
  const Extent part = extent(child, depth + 1);
  const size_t most = limits_.always + limits_.per_byte * bytes_.size();
  total.size += part.size;
  total.depth = std::max(total.depth, part.depth + 1);
  check(total.size <= most, "{} bytes unfold into more than {} values and bytes of text", bytes_.size(), most);
}

PickleMachine::Extent PickleMachine::extent(const PickleValue& value, int depth) {
  if (value.kind() == Kind::kString || value.kind() == Kind::kBytes) return {.size = 1 + value.text().size()};
  const Items* children = value.children();
  if (children == nullptr) return {};
  if (const auto seen = extents_.find(identity(value)); seen != extents_.end()) {
    check(depth + seen->second.depth <= limits_.depth, "values are nested deeper than {}", limits_.depth);
    return seen->second;
  }
  check(depth < limits_.depth, "values are nested deeper than {} or contain themselves", limits_.depth);
  Extent total;
  for (const PickleValue& child : *children) add_extent(child, depth, total);
  if (value.kind() == Kind::kObject) {
    extents_.emplace(children, total);  // they may be those of a tuple as well, which must not be emptied
    add_extent(value.state(), depth, total);
  }
  extents_.emplace(identity(value), total);
  return total;
}

PickleValue read_pickle(std::span<const std::byte> bytes, const std::string& what, const PickleLimits& limits) {
  return PickleMachine(bytes, what, limits).run(/*followed=*/false);
}

PickleValue read_first_pickle(std::span<const std::byte>& bytes, const std::string& what, const PickleLimits& limits) {
  PickleMachine machine(bytes, what, limits);
  PickleValue value = machine.run(/*followed=*/true);
  bytes = bytes.subspan(machine.size());
  return value;
}

}  // namespace titanium::checkpoint
