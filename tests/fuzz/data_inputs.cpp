// Files of training data and vocabularies.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/fuzz/inputs.h"
#include "titanium/base/text/base64.h"

namespace titanium::fuzz {
namespace {

// Mostly `usual`, seldom anything.
template <typename T>
T mostly(Choices& choices, T usual) {
  return choices.one_in(30) ? static_cast<T>(choices.number()) : usual;
}

std::string tokens(Choices& choices, size_t count, size_t width) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += raw(choices.below(1000)).substr(0, width);
  if (choices.one_in(20)) out.resize(out.size() + choices.below(3));
  return out;
}

Input make_megatron(Choices& choices) {
  const size_t width = choices.pick<size_t>({2, 4, 8}), count = choices.some(3'000);
  const auto type = static_cast<uint8_t>(width == 2 ? 8 : width == 4 ? 4 : 5);
  const std::string file = tokens(choices, choices.some(4'000), width);
  const auto whole = static_cast<int64_t>(file.size() / width);
  const bool shares = choices.one_in(4);  // every sequence is the whole file
  std::string lengths, places;
  int64_t place = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t length = shares ? whole : mostly<int64_t>(choices, whole / static_cast<int64_t>(count));
    lengths += raw(static_cast<int32_t>(length));
    places += raw(shares ? int64_t{0} : mostly(choices, place));
    place += (whole / static_cast<int64_t>(count)) * static_cast<int64_t>(width);
  }
  const bool one_document = choices.one_in(3);
  std::string bounds;
  for (size_t i = 0; i <= count; ++i) {
    if (!one_document || i == 0 || i == count) bounds += raw(mostly(choices, static_cast<int64_t>(i)));
  }
  const auto documents = static_cast<int64_t>(bounds.size() / 8);
  return {{"a.idx", std::string("MMIDIDX\0\0", 9) + raw(mostly<int64_t>(choices, 1)) + raw(mostly(choices, type)) +
                        raw(mostly(choices, static_cast<int64_t>(count))) + raw(mostly(choices, documents)) + lengths +
                        places + bounds},
          {"a.bin", file}};
}

Input make_datatrove(Choices& choices) {
  const size_t width = choices.pick<size_t>({2, 4});
  std::string ends;
  int64_t total = 0;
  for (size_t count = choices.some(4'000); count > 0; --count) {
    total += static_cast<int64_t>(choices.below(5));
    ends += raw(mostly(choices, total));
  }
  return {{"a.ds", tokens(choices, static_cast<size_t>(total), width)}, {"a.ds.index", ends}};
}

Input make_array(Choices& choices) {
  const std::string values = tokens(choices, choices.some(20'000), 2);
  const auto count = static_cast<int64_t>(values.size() / 2);
  switch (choices.below(3)) {
    case 0: {
      const auto magic = choices.one_in(3) ? int32_t{20240801} : int32_t{20240520};
      return {{"a.bin", raw(magic) + raw(int32_t{1}) + raw(static_cast<int32_t>(mostly(choices, count))) +
                            std::string(256 * 4 - 12, '\0') + values}};
    }
    case 1: {
      const std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}\n",
                                             choices.pick<std::string>({"<u2", "<i4", "<i8", ">u2", "|O"}), count);
      const bool is_long = choices.one_in(2);
      const auto size = mostly(choices, static_cast<uint32_t>(header.size()));
      return {{"a.npy", std::string("\x93NUMPY") + (is_long ? '\2' : '\1') + '\0' +
                            (is_long ? raw(size) : raw(static_cast<uint16_t>(size))) + header + values}};
    }
    default:
      return {{"a.bin", values}};
  }
}

std::string octal(uint64_t value, size_t digits) { return fmt::format("{:0{}o}", value, digits).substr(0, digits); }

std::string tar_member(Choices& choices, const std::string& name, const std::string& content, char type) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name.substr(0, 100));
  if (choices.one_in(20)) {
    put(124, std::string("\x80\0\0\0", 4) + raw(choices.number()));
  } else {
    put(124, octal(mostly<uint64_t>(choices, content.size()) & ((uint64_t{1} << 33) - 1), 11));
  }
  header[156] = type;
  put(257, "ustar");
  put(148, "        ");
  uint64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, octal(sum, 6) + '\0');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

// --- Vocabularies ---

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(value | 0x80U);
  return out + static_cast<char>(value);
}

std::string message(uint64_t number, const std::string& bytes) {
  return varint(number << 3U | 2) + varint(bytes.size()) + bytes;
}

std::string piece(Choices& choices, const std::string& text, uint64_t type) {
  const uint32_t bits = choices.one_in(40) ? static_cast<uint32_t>(choices.number()) : 0xBF800000U + choices.below(999);
  return message(1, message(1, text) + "\x15" + raw(bits) + "\x18" + varint(mostly(choices, type)));
}

Input make_sentencepiece(Choices& choices) {
  std::string model = piece(choices, "<unk>", 2) + piece(choices, "<s>", 3) + piece(choices, "a", 1);
  if (choices.one_in(3)) {
    for (int byte = 0; byte < 256; ++byte) model += piece(choices, fmt::format("<0x{:02X}>", byte), 6);
  }
  for (size_t count = choices.some(2'000); count > 0; --count) {
    const std::string text = choices.one_in(3) ? choices.text(40) : repeated("a", 1 + choices.some(30'000));
    model += piece(choices, text, choices.one_in(10) ? 1 + choices.below(6) : 1);
  }
  std::string trainer = "\x18" + varint(1 + choices.below(2));
  if (choices.one_in(3)) trainer += varint(35U << 3U) + "\1";
  std::string charsmap = raw(mostly<uint32_t>(choices, 16));
  for (int unit = 0; unit < 4; ++unit) charsmap += raw(static_cast<uint32_t>(choices.number()));
  return {{"tokenizer.model",
           model + message(2, trainer) + (choices.one_in(2) ? message(3, message(2, charsmap + "b" + '\0')) : "")}};
}

Input make_tekken(Choices& choices) {
  std::string vocab;
  for (size_t i = 0, count = 256 + choices.some(1'000); i < count; ++i) {
    const std::string bytes = i < 256 ? std::string(1, static_cast<char>(i)) : repeated("ab", choices.some(20'000));
    vocab += fmt::format(R"({}{{"rank":{},"token_bytes":"{}"}})", i == 0 ? "" : ",", mostly(choices, i),
                         choices.one_in(500) ? "*" : to_base64(bytes));
  }
  const int64_t special = mostly<int64_t>(choices, 10);
  return {
      {"tekken.json",
       fmt::format(
           R"({{"config":{{"pattern":"{}","default_vocab_size":{},"default_num_special_tokens":{}}},"vocab":[{}]}})",
           choices.pick<std::string>({".", "a*b|a", "(", R"(\\s+|\\S+)"}),
           choices.one_in(2) ? special + 256 : choices.number(), special, vocab)}};
}

Input make_ranks(Choices& choices) {
  std::string lines;
  for (size_t i = 0, count = choices.some(2'000); i < count; ++i) {
    lines +=
        fmt::format("{} {}\n", choices.one_in(9) ? choices.text(9) : to_base64(choices.text(9)), mostly(choices, i));
  }
  return {{"a.tiktoken", lines}};
}

}  // namespace

Input make_lines(Choices& choices) {
  std::string lines;
  for (size_t count = 1 + choices.some(200); count > 0; --count) {
    std::string line = "{";
    for (size_t fields = choices.some(8); fields > 0; --fields) {
      line += fmt::format("{}:{},", quoted(choices.text(4)), make_json_value(choices, 2));
    }
    line += "\"text\":" + (choices.one_in(9) ? make_json_value(choices, 3) : quoted(choices.text(2'000))) + "}";
    if (choices.one_in(9)) line += choices.pick<std::string>({" ", "}", "\r", ",1", std::string(1, '\0')});
    lines += line + choices.pick<std::string>({"\n", "\n\n", "\r\n"});
  }
  return {{"a.jsonl", lines}};
}

Input make_token_files(Choices& choices) {
  switch (choices.below(3)) {
    case 0:
      return make_megatron(choices);
    case 1:
      return make_datatrove(choices);
    default:
      return make_array(choices);
  }
}

Input make_shard(Choices& choices) {
  std::vector<std::string> names, encodings, sizes;
  std::string fixed, variable;  // of each sample
  for (size_t columns = choices.some(500); columns > 0; --columns) {
    names.push_back(quoted(choices.text(3)));
    encodings.push_back(choices.pick<std::string>({"\"int\"", "\"str\"", "\"bytes\"", "\"ndarray:int32:4\""}));
    sizes.push_back(choices.one_in(9) ? make_json_value(choices, 1) : std::to_string(mostly<int64_t>(choices, 0)));
  }
  names.push_back("\"tokens\"");
  encodings.push_back(choices.pick<std::string>({"\"ndarray:uint16\"", "\"bytes\"", "\"str\"", "\"int\""}));
  sizes.push_back("null");
  const std::string config = fmt::format(R"({{"column_names":[{}],"column_encodings":[{}],"column_sizes":[{}]}})",
                                         fmt::join(names, ","), fmt::join(encodings, ","), fmt::join(sizes, ","));
  const size_t samples = choices.some(2'000);
  std::string places, content;
  const size_t first = 4 + 4 * (samples + 1) + config.size();
  for (size_t i = 0; i <= samples; ++i) {
    places += raw(mostly(choices, static_cast<uint32_t>(first + content.size())));
    if (i == samples) break;
    const std::string array = std::string("\x04\x02", 2) + tokens(choices, 2, 2);
    content += raw(mostly(choices, static_cast<uint32_t>(array.size()))) + array;
  }
  return {{"a.mds", raw(mostly(choices, static_cast<uint32_t>(samples))) + places + config + content}};
}

Input make_archive(Choices& choices) {
  std::string archive;
  for (size_t count = choices.some(300); count > 0; --count) {
    switch (choices.below(6)) {
      case 0:
        archive += tar_member(choices, "@LongLink", choices.text(300) + ".txt", 'L');
        break;
      case 1:
        archive +=
            tar_member(choices, "pax",
                       fmt::format("20 path={}\n30 size={}\n", choices.text(30), mostly<int64_t>(choices, 5)), 'x');
        break;
      default:
        archive += tar_member(choices, choices.one_in(3) ? choices.text(20) : "a.txt", choices.text(400),
                              choices.pick<char>({'0', '\0', '7', '5', 'g'}));
    }
  }
  return {{"a.tar", archive + std::string(choices.one_in(3) ? 0 : 1024, '\0')}};
}

Input make_vocabulary(Choices& choices) {
  switch (choices.below(4)) {
    case 0:
      return make_tekken(choices);
    case 1:
      return make_ranks(choices);
    default:
      return make_sentencepiece(choices);
  }
}

}  // namespace titanium::fuzz
