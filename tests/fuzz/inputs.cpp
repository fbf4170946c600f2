#include "tests/fuzz/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace titanium::fuzz {
namespace {

constexpr size_t kDeep = 40'000;

// --- Pickle ---

class PickleMaker {
 public:
  explicit PickleMaker(Choices& choices) : choices_(choices) {}

  std::string make() {
    out_ = std::string("\x80") + static_cast<char>(2 + choices_.below(4));
    if (choices_.one_in(4)) extreme();
    for (size_t left = choices_.one_in(4) ? choices_.some(16) : 0; left > 0; --left) value(3);  // stays on the stack
    choices_.one_in(8) ? metadata() : value(6);
    return out_ + ".";
  }

 private:
  void text(const std::string& content) { out_ += "X" + raw(static_cast<uint32_t>(content.size())) + content; }
  void global(const std::string& name) {
    const size_t dot = name.rfind('.');
    out_ += "c" + name.substr(0, dot) + "\n" + name.substr(dot + 1) + "\n";
  }
  void remember() {
    out_ += "\x94";
    ++remembered_;
  }
  void recall() {
    if (remembered_ == 0) return text("x");
    out_ += "j" + raw(static_cast<uint32_t>(choices_.below(remembered_)));
  }

  void extreme() {
    switch (choices_.below(6)) {
      case 0:  // deep, outside the result or inside
        out_ += "N" + repeated(choices_.pick<std::string>({"\x85", "\x85\x94", "Q"}), choices_.some(kDeep));
        remembered_ = 0;
        if (choices_.one_in(2)) out_ += "0";
        return;
      case 1: {  // lists in lists
        const size_t depth = choices_.some(kDeep);
        out_ += repeated("]", depth + 1) + repeated("a", depth) + "0";
        return;
      }
      case 2: {  // doubling
        out_ += "]\x94";
        ++remembered_;
        for (size_t i = 0, levels = choices_.some(200); i < levels; ++i) {
          const std::string last = "j" + raw(static_cast<uint32_t>(remembered_ - 1));
          out_ += "](" + last + last + "e\x94";
          ++remembered_;
        }
        if (choices_.one_in(2)) out_ += "0";
        return;
      }
      case 3: {  // one long value used again and again
        text(std::string(choices_.some(20'000), 't'));
        remember();
        out_ += "0](" + repeated("j" + raw(static_cast<uint32_t>(remembered_ - 1)), choices_.some(20'000)) + "e";
        return;
      }
      case 4: {  // calls with one tuple
        out_ += "(" + repeated("N", choices_.some(20'000)) + "t\x94";
        const std::string arguments = "j" + raw(static_cast<uint32_t>(remembered_++));
        global(choices_.pick(kCallable));
        out_ += "\x94";
        const std::string callable = "j" + raw(static_cast<uint32_t>(remembered_++));
        out_ += repeated(callable + arguments + choices_.pick<std::string>({"R", "\x81"}) + "0", choices_.some(5'000));
        return;
      }
      default: {  // texts that are encoded again and again
        text(std::string(choices_.some(20'000), 'e'));
        remember();
        global("_codecs.encode");
        out_ += "\x94";
        const auto encode = static_cast<uint32_t>(remembered_++);
        out_ += repeated("j" + raw(encode) + "j" + raw(encode - 1) + "X\6" + std::string(3, '\0') + "latin1\x86R0",
                         choices_.some(2'000));
      }
    }
  }

  void items(int depth) {
    for (size_t count = choices_.some(12); count > 0; --count) value(depth - 1);
  }

  void value(int depth) {
    switch (choices_.below(depth > 0 ? 15 : 6)) {
      case 0:
        out_ += choices_.pick<std::string>({"N", "\x88", "\x89"});
        return;
      case 1:
        out_ += "\x8a\x08" + raw(choices_.number());
        return;
      case 2:
        text(choices_.text());
        return;
      case 3:
        out_ += "G" + raw(choices_.number());
        return;
      case 4:
        return recall();
      case 5:
        global(choices_.pick(kCallable));
        return;
      case 6:
        out_ += "](";
        items(depth);
        out_ += "e";
        return choices_.one_in(3) ? remember() : void();
      case 7:
        out_ += "(";
        items(depth);
        out_ += "t";
        return choices_.one_in(3) ? remember() : void();
      case 8:
      case 9:
        out_ += "}(";
        for (size_t count = choices_.some(12); count > 0; --count) text(choices_.text()), value(depth - 1);
        out_ += "u";
        return choices_.one_in(3) ? remember() : void();
      case 10:
        return shape(sizes(true));
      case 11:
        global("collections.OrderedDict");
        out_ += ")R";
        return choices_.one_in(3) ? remember() : void();
      case 12:
        value(depth - 1);
        out_ += "Q";
        return;
      default:
        global(choices_.pick(kCallable));
        out_ += "(";
        items(depth);
        out_ += choices_.one_in(2) ? "tR" : "t\x81";
        if (choices_.one_in(2)) {
          value(depth - 1);
          out_ += "b";
        }
        return choices_.one_in(3) ? remember() : void();
    }
  }

  using Sizes = std::vector<int64_t>;

  void shape(const Sizes& sizes) {
    global("torch.Size");
    out_ += "(";
    for (const int64_t size : sizes) out_ += "\x8a\x08" + raw(size);
    out_ += "t\x85R";
  }
  // Sizes of any magnitude, or small ones.
  Sizes sizes(bool any) {
    Sizes made(choices_.below(4));
    for (int64_t& size : made) size = any ? choices_.number() : static_cast<int64_t>(choices_.below(5));
    return made;
  }

  void attribute(const std::string& name) { text(choices_.one_in(200) ? choices_.text() : name); }
  void open(const std::string& name) {
    global("torch.distributed.checkpoint." + name);
    out_ += ")\x81}(";
  }

  // The index of a distributed checkpoint. Half of them fit together, until one part does not.
  void metadata() {
    const bool any = choices_.one_in(2);
    open("metadata.Metadata");
    attribute("state_dict_metadata");
    out_ += "}(";
    std::vector<Sizes> tensors(choices_.some(8));
    for (size_t i = 0; i < tensors.size(); ++i) {
      text(fmt::format("w{}", i));
      tensor(tensors[i] = sizes(any), any);
    }
    out_ += "u";
    attribute("planner_data");
    out_ += "}(";
    for (size_t i = 0; i < tensors.size(); ++i) {
      text(fmt::format("w{}", i));
      any || choices_.one_in(50) ? value(1) : (text(fmt::format("w{}", i)), void(out_ += "\x85"));
    }
    out_ += "u";
    attribute("storage_data");
    out_ += "}(";
    for (size_t i = 0; i < tensors.size(); ++i) location(fmt::format("w{}", i), Sizes(tensors[i].size()));
    out_ += "uub";
  }

  void tensor(const Sizes& size, bool any) {
    open("metadata.TensorStorageMetadata");
    attribute("properties");
    properties();
    attribute("size");
    shape(size);
    attribute("chunks");
    out_ += "](";
    for (size_t chunks = any ? choices_.some(16) : 1; chunks > 0; --chunks) {
      open("metadata.ChunkStorageMetadata");
      attribute("offsets");
      shape(any ? sizes(true) : Sizes(size.size()));
      attribute("sizes");
      shape(any ? sizes(true) : size);
      out_ += "ub";
    }
    out_ += "eub";
  }

  void location(const std::string& name, const Sizes& offset) {
    open("metadata.MetadataIndex");
    attribute("fqn");
    text(name);
    attribute("offset");
    shape(offset);
    out_ += "ub";
    open("filesystem._StorageInfo");
    attribute("relative_path");
    text(choices_.one_in(50) ? choices_.text() : "__0_0.distcp");
    for (const char* number : {"offset", "length"}) {
      attribute(number);
      out_ += "\x8a\x08" + raw(choices_.one_in(50) ? choices_.number() : 100);
    }
    out_ += "ub";
  }

  void properties() {
    global("torch.distributed.checkpoint.metadata.TensorProperties");
    out_ += ")\x81(";
    global("torch.float32");
    global("torch.serialization._get_layout");
    text("torch.strided");
    out_ += "\x85R\x88N\x89tb";
  }

  static const std::vector<std::string> kCallable;
  Choices& choices_;
  std::string out_;
  size_t remembered_ = 0;
};

const std::vector<std::string> PickleMaker::kCallable = {"torch.device",
                                                         "torch.float32",
                                                         "torch.FloatStorage",
                                                         "torch._utils._rebuild_tensor_v2",
                                                         "builtins.getattr",
                                                         "pathlib.PosixPath",
                                                         "torch.distributed.checkpoint.metadata.StorageMeta",
                                                         "os.system"};

// --- JSON ---

class JsonMaker {
 public:
  explicit JsonMaker(Choices& choices) : choices_(choices) {}

  std::string value(int depth) {
    switch (choices_.below(depth > 0 ? 9 : 5)) {
      case 0:
        return choices_.pick<std::string>({"null", "true", "false", "1e400", "-0", "0.1", "1e-400"});
      case 1:
        return std::to_string(choices_.number());
      case 2:
      case 3:
        return quoted(choices_.text());
      case 4:
        return choices_.pick<std::string>({"[]", "{}"});
      case 5: {
        std::string out = "[" + value(depth - 1);
        for (size_t count = choices_.some(12); count > 0; --count) out += "," + value(depth - 1);
        return out + "]";
      }
      case 6: {  // far too deep, closed or not
        const size_t levels = choices_.some(kDeep);
        const std::string open = choices_.pick<std::string>({"[", "{\"a\":", "[{\"type\":\"Sequence\",\"decoders\":"});
        return repeated(open, levels) + (choices_.one_in(2) ? "1" + std::string(levels, ']') : "");
      }
      default: {
        std::string out = "{\"first\":" + value(depth - 1);
        const bool same = choices_.one_in(8);
        for (size_t count = choices_.some(same ? 8192 : 24); count > 0; --count) {
          out += fmt::format(",{}:{}", same ? "\"k" + std::to_string(count) + "\"" : quoted(choices_.text()),
                             same ? "{}" : value(depth - 1));
        }
        return out + "}";
      }
    }
  }

  std::string split() {
    static const std::vector<std::string> patterns = {"a*b|a",
                                                      R"(\\s+(?!\\S)|\\s+|\\S)",
                                                      "(a|a)*b|.",
                                                      "(?:a+)+$|a",
                                                      R"(\\p{L}+|.)",
                                                      "[^b]*b|x",
                                                      ".",
                                                      "(?=a)",
                                                      "(",
                                                      R"(\\w{2}?)"};
    return fmt::format(R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"{}","invert":{}}})",
                       choices_.pick(patterns),
                       choices_.pick<std::string>({"Isolated", "Removed", "Contiguous", "MergedWithNext"}),
                       choices_.one_in(2) ? "true" : "false");
  }

  std::string tokenizer() {
    std::string vocab, merges, sequence = split();
    for (size_t i = 0, count = choices_.some(64); i < count; ++i) {
      vocab += fmt::format(",{}:{}", quoted(choices_.text(4)), choices_.one_in(20) ? value(1) : std::to_string(i + 3));
    }
    for (size_t count = choices_.some(64); count > 0; --count) {
      merges += fmt::format(",{}", choices_.one_in(20) ? value(1) : R"(["a","b"])");
    }
    for (size_t depth = choices_.below(3) == 0 ? choices_.some(80) : 0; depth > 0; --depth) {
      sequence = R"({"type":"Sequence","pretokenizers":[)" + sequence + "]}";
    }
    return fmt::format(
        R"({{"model":{{"type":"BPE","unk_token":"a","vocab":{{"a":0,"b":1,"ab":2{}}},"merges":["a b"{}]}},"pre_tokenizer":{},)"
        R"("normalizer":{},"added_tokens":[{{"content":{},"lstrip":true}}],"decoder":{}}})",
        vocab, merges, choices_.one_in(8) ? value(2) : sequence, choices_.one_in(3) ? value(1) : R"({"type":"NFC"})",
        quoted(choices_.text(8)), choices_.one_in(3) ? value(2) : R"({"type":"ByteLevel"})");
  }

  std::string position() {
    std::string rows;
    for (size_t count = choices_.some(64); count > 0; --count) {
      rows += fmt::format("{}[{}]", rows.empty() ? "" : ",", choices_.one_in(9) ? value(1) : "1,2,3,4,5,6,7,8,9");
    }
    return fmt::format(R"({{"version":{},"streams":{},"seq_len":{},"fingerprint":"","positions":[{}]}})",
                       choices_.one_in(9) ? value(1) : "1", choices_.number(), choices_.number(), rows);
  }

 private:
  Choices& choices_;
};

}  // namespace

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

size_t Choices::some(size_t most) {
  if (one_in(400)) return 1 + below(most);
  return below(std::min<size_t>(most, one_in(8) ? 64 : 5) + 1);
}

int64_t Choices::number() {
  const int64_t edge = int64_t{1} << below(63);
  switch (below(6)) {
    case 0:
      return edge;
    case 1:
      return edge - 1;
    case 2:
      return -edge;
    case 3:
      return INT64_MIN + static_cast<int64_t>(below(2));
    default:
      return static_cast<int64_t>(below(8));
  }
}

std::string Choices::text(size_t most) {
  static const std::vector<std::string> pieces = {
      "a",  "b",    "layers.0.weight", ".",     "é",    "\x1b[31m", "\n", "_",
      "\"", "\xff", "\xed\xa0\x80",    "\\u00", "名前", "\x7f",     "'",  " "};
  std::string out;
  for (size_t count = some(most); count > 0; --count) out += pick(pieces);
  return out;
}

std::string make_pickle(Choices& choices) { return PickleMaker(choices).make(); }

std::string make_json_value(Choices& choices, int depth) { return JsonMaker(choices).value(depth); }

std::string make_json(Choices& choices) {
  JsonMaker maker(choices);
  switch (choices.below(3)) {
    case 0:
      return maker.tokenizer();
    case 1:
      return maker.position();
    default:
      return maker.value(6);
  }
}

std::string make_toml(Choices& choices) {
  const auto key = [&] {
    std::string name = choices.pick<std::string>({"a", "b-c", "\"x y\"", "'l.m'", "training", "steps"});
    for (size_t dots = choices.some(2'000); dots > 0; --dots) name += choices.pick<std::string>({".a", ".b", " . c"});
    return name;
  };
  const std::function<std::string(int)> value = [&](int depth) -> std::string {
    switch (choices.below(depth > 0 ? 9 : 6)) {
      case 0:
        return std::to_string(choices.number());
      case 1:
        return choices.pick<std::string>({"true", "1.5", "nan", "1e400", "1979-05-27", "07:32:00", "0xff", "inf"});
      case 2:
        return "\"" + repeated(choices.pick<std::string>({"a.", "\\\"", "\\u00e9", "#"}), choices.some(3'000)) + "\"";
      case 3:
        return "'''" + repeated(choices.pick<std::string>({"\n", "'", ".", "["}), choices.some(60)) + " '''";
      case 4:
        return "\"\"\"" + repeated(choices.pick<std::string>({"\n", "\\\n ", ".", "\" "}), choices.some(60)) + "\"\"\"";
      case 5:
        return repeated("[", choices.some(kDeep)) + "]";
      case 6: {
        std::string out = "[";
        for (size_t count = choices.some(40); count > 0; --count) out += value(depth - 1) + ",\n";
        return out + "]";
      }
      default: {
        std::string out = "{" + key() + " = " + value(depth - 1);
        for (size_t count = choices.some(20); count > 0; --count) {
          out += fmt::format(", k{} = {}", count, value(depth - 1));
        }
        return out + "}";
      }
    }
  };
  std::string out;
  for (size_t lines = 1 + choices.some(200); lines > 0; --lines) {
    if (choices.one_in(4)) out += choices.one_in(3) ? "[[" + key() + "]]\n" : "[" + key() + "]\n";
    if (choices.one_in(8)) out += "# " + repeated(". ", choices.some(3'000)) + "\n";
    out += fmt::format("{}{} = {}\n", key(), choices.one_in(2) ? std::to_string(lines) : "", value(4));
  }
  return out;
}

std::string make_safetensors(Choices& choices) {
  JsonMaker maker(choices);
  std::string header = "{";
  uint64_t position = 0;
  const bool sane = choices.one_in(3);
  for (size_t i = 0, count = choices.some(4096); i < count; ++i) {
    std::vector<int64_t> shape;
    uint64_t bytes = sane ? 1 : static_cast<uint64_t>(choices.number());
    for (size_t dims = choices.below(sane ? 2 : 5); dims > 0; --dims) {
      shape.push_back(sane ? static_cast<int64_t>(choices.below(4)) : choices.number());
      if (sane) bytes *= static_cast<uint64_t>(shape.back());
    }
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", i == 0 ? "" : ",",
                          choices.one_in(3) ? quoted(choices.text()) : fmt::format("\"w{}\"", i),
                          sane ? "U8" : choices.pick<std::string>({"U8", "F32", "BF16", "X"}), fmt::join(shape, ","),
                          position, position + bytes);
    position += bytes;
  }
  if (choices.one_in(4)) header += (header.size() > 1 ? "," : "") + ("\"__metadata__\":" + maker.value(2));
  header += "}";
  const uint64_t length = choices.one_in(10) ? static_cast<uint64_t>(choices.number()) : header.size();
  return raw(length) + header + std::string(std::min<uint64_t>(position, 4096), 'd');
}

std::string make_csv(Choices& choices) {
  const auto stages = static_cast<int64_t>(1 + choices.some(64)), batches = static_cast<int64_t>(1 + choices.some(64));
  const bool wild = choices.one_in(2);
  std::string out;
  for (int64_t stage = 0; stage < stages; ++stage) {
    for (const char* kind : {"F", "B"}) {
      for (int64_t batch = 0; batch < batches; ++batch) {
        if (wild && choices.one_in(10)) {
          out += choices.pick<std::string>({"", "(0F4;3B1)OVERLAP_F_B", "0SEND_F1", " \"1W0\" ", "(", "0F"}) + ",";
        } else {
          out += fmt::format("{}{}{},", wild && choices.one_in(30) ? choices.number() : stage, kind,
                             wild && choices.one_in(30) ? choices.number() : batch);
        }
      }
    }
    out += "\n";
  }
  return out + repeated(choices.pick<std::string>({",", "\n", "0F0,"}), choices.some(5'000));
}

std::string damage(std::string input, Choices& choices) {
  for (size_t edits = 1 + choices.below(4); edits > 0; --edits) {
    const size_t at = choices.below(input.size() + 1), length = choices.some(64);
    switch (choices.below(4)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(choices.below(256));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(choices.below(input.size() + 1), length));
        break;
      default:
        input.insert(at, raw(choices.number()).substr(0, 1 + choices.below(8)));
    }
  }
  return input;
}

}  // namespace titanium::fuzz
