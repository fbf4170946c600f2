// Pickles that Python wrote (as bytes in the source), pickles that nobody should write, and our own.
#include <random>

#include "titanium/base/error.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::checkpoint {
namespace {

using namespace std::string_literals;
using Kind = PickleValue::Kind;

PickleValue read(const std::string& pickle, const PickleLimits& limits = {}) {
  return read_pickle(std::as_bytes(std::span(pickle)), "test", limits);
}

std::string refusal(const std::string& pickle, const PickleLimits& limits = {}) {
  try {
    return "accepted: " + read(pickle, limits).repr();
  } catch (const Error& error) {
    return error.what();
  }
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// pickle.dumps({"a": 1, "b": [1, 2.5, None, True], "c": b"\xff\x00", "d": -5, "e": 10**12, "t": (1, 2, 3, 4)},
// protocol)
const std::string kProtocol2 =
    "\x80\x02}q\x00(X\x01\x00\x00\x00"
    "aq\x01K\x01X\x01\x00\x00\x00"
    "bq\x02]q\x03(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88"
    "eX\x01\x00\x00\x00"
    "cq\x04"
    "c_"
    "codecs\nencode\nq\x05X\x03\x00\x00\x00\xc3\xbf\x00q\x06X\x06\x00\x00\x00latin1q\x07\x86q\x08Rq\tX\x01\x00\x00\x00"
    "dq\nJ\xfb\xff\xff\xffX\x01\x00\x00\x00"
    "eq\x0b\x8a\x06\x00\x10\xa5\xd4\xe8\x00X\x01\x00\x00\x00tq\x0c(K\x01K\x02K\x03K\x04tq\ru."s;
const std::string kProtocol5 =
    "\x80\x05\x95M\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
    "a\x94K\x01\x8c\x01"
    "b\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00N\x88"
    "e\x8c\x01"
    "c\x94"
    "C\x02\xff\x00\x94\x8c\x01"
    "d\x94J\xfb\xff\xff\xff\x8c\x01"
    "e\x94\x8a\x06\x00\x10\xa5\xd4\xe8\x00\x8c\x01t\x94(K\x01K\x02K\x03K\x04t\x94u."s;
constexpr std::string_view kContent =
    R"({'a': 1, 'b': [1, 2.5, None, True], 'c': b'\xff\x00', 'd': -5, 'e': 1000000000000, 't': (1, 2, 3, 4)})";

TEST(Pickle, PlainValuesOfPythonAreRead) {
  EXPECT_EQ(read(kProtocol2).repr(), kContent);
  EXPECT_EQ(read(kProtocol5).repr(), kContent);
}

TEST(Pickle, WhatWasWrittenIsReadAgain) {
  const PickleValue value = PickleValue::dict(
      {{"none", {}},
       {"bool", true},
       {"ints",
        PickleValue::list({0, -1, 255, 256, 65536, -70000, int64_t{1} << 40, std::numeric_limits<int64_t>::min()})},
       {"reals", PickleValue::tuple({0.0, -0.1, 1e300})},
       {"text", "a 'quoted' \\ text, 名前"},
       {"again", "text"},
       {"bytes", PickleValue::bytes("\x00\x7f\x80\xff"s)},
       {"empty", PickleValue::tuple({PickleValue::list({}), PickleValue::dict({}), PickleValue::tuple({})})},
       {"dtype", PickleValue::global("torch", "float32")},
       {"call", PickleValue::call("torch", "device", {"cpu"})},
       {"object", PickleValue::instance("torch.distributed.checkpoint.metadata", "StorageMeta", PickleValue::dict({}))},
       {"id", PickleValue::persistent_id(PickleValue::tuple({"storage", 1}))}});
  EXPECT_EQ(read(write_pickle(value)).repr(), value.repr());
  EXPECT_TRUE(read(write_pickle(value)) == value);
  std::vector<std::pair<PickleValue, PickleValue>> many;
  for (int i = 0; i < 1000; ++i) many.emplace_back(std::to_string(i), std::to_string(i % 300));
  EXPECT_TRUE(read(write_pickle(PickleValue::dict(many))) == PickleValue::dict(many));
}

TEST(Pickle, ClassesOfTorchBecomeObjectsAndPlainValues) {
  EXPECT_EQ(read("\x80\x02"
                 "ctorch\nSize\nK\x02K\x03\x86\x85R.")
                .repr(),
            "(2, 3)");
  EXPECT_EQ(read("\x80\x02"
                 "ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00"
                 "aK\x01u}b."s)
                .repr(),
            "{'a': 1}");
  const PickleValue index = read(
      "\x80\x04\x8c\x25torch.distributed.checkpoint.metadata\x8c\x0dMetadataIndex\x93)\x81}("
      "\x8c\x03"
      "fqn\x8c\x01w\x8c\x05indexNub."s);
  EXPECT_EQ(index.type_name(), "torch.distributed.checkpoint.metadata.MetadataIndex");
  EXPECT_EQ(index.state().at("fqn").as_string(), "w");
  EXPECT_TRUE(index.state().at("index").is_none());
  EXPECT_THROW(index.state().at("offset"), Error);
  EXPECT_THROW(index.state().at("fqn").as_int(), Error);
}

TEST(Pickle, MembersOfEnumerationsAreReadInBothSpellings) {
  const std::string format = "ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"s;
  const PickleValue called = read("\x80\x02"s + format + "K\x00\x85R."s);
  const PickleValue taken = read(
      "\x80\x02"
      "c__builtin__\ngetattr\n"s +
      format + "X\x17\x00\x00\x00TORCH_CONTIGUOUS_FORMAT\x86R."s);
  EXPECT_EQ(taken.type_name(), called.type_name());
  EXPECT_EQ(taken.items()[0].as_string(), "TORCH_CONTIGUOUS_FORMAT");
  EXPECT_NE(refusal("\x80\x02"
                    "cbuiltins\ngetattr\nctorch\nSize\nX\x01\x00\x00\x00x\x86R."s)
                .find("getattr takes something else than a member of an enumeration"),
            std::string::npos);
}

TEST(Pickle, UnknownClassesAreNamedAndRefused) {
  EXPECT_NE(refusal("\x80\x02"
                    "cos\nsystem\nX\x04\x00\x00\x00true\x85R."s)
                .find("names os.system"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x04\x8c\x08"
                    "builtins\x8c\x04"
                    "eval\x93\x8c\x01"
                    "1\x85R."s)
                .find("names builtins.eval"),
            std::string::npos);
  // A listed class is not called with something that it is not made of.
  EXPECT_NE(refusal("\x80\x02"
                    "c_codecs\nencode\nX\x01\x00\x00\x00"
                    "aX\x05\x00\x00\x00rot13\x86R."s)
                .find("latin1"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x02"
                    "c_codecs\nencode\nX\x02\x00\x00\x00\xc4\x80X\x06\x00\x00\x00latin1\x86R."s)
                .find("beyond 255"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x02K\x01)R.").find("something else than a class is called"), std::string::npos);
}

TEST(Pickle, EveryTruncationIsRefused) {
  for (const std::string& pickle : {kProtocol2, kProtocol5}) {
    for (size_t length = 0; length < pickle.size(); ++length) {
      EXPECT_THROW(read(pickle.substr(0, length)), Error) << length;
    }
    EXPECT_NE(refusal(pickle + "x").find("1 bytes follow the end"), std::string::npos);
  }
}

TEST(Pickle, AnnouncedLengthsBeyondTheEndAreRefusedBeforeAnythingIsAllocated) {
  for (const std::string& opcode : {"X\xff\xff\xff\xff"s, "\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"s, "B\xff\xff\xff\xff"s,
                                    "\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s, "\x96\xff\xff\xff\xff\xff\xff\xff\xff"s}) {
    EXPECT_NE(refusal("\x80\x05" + opcode + ".").find("bytes are announced, but 1 follow"), std::string::npos);
  }
  EXPECT_NE(refusal("\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\xffN.").find("a frame of"), std::string::npos);
  EXPECT_NE(refusal("\x80\x05\x8b\x09\x00\x00\x00\x01\x01\x01\x01\x01\x01\x01\x01\x01."s).find("beyond 64 bits"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x05Nr\xff\xff\xff\xff.").find("memo entry 4294967295 follows entry 0"), std::string::npos);
}

TEST(Pickle, DeepNestingIsRefusedWithoutRecursion) {
  constexpr int kDeep = 300'000;
  EXPECT_NE(refusal("\x80\x02N" + repeated("\x85", kDeep) + ".").find("nested deeper than 200"), std::string::npos);
  EXPECT_NE(refusal("\x80\x02" + repeated("]", kDeep) + repeated("a", kDeep - 1) + ".").find("nested deeper than 200"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x02N" + repeated("\x85", kDeep)).find("bytes are announced"), std::string::npos);
  EXPECT_EQ(read("\x80\x02N" + repeated("\x85", 199) + ".").kind(), Kind::kTuple);
}

TEST(Pickle, ContainersThatContainThemselvesAreRefused) {
  EXPECT_NE(refusal("\x80\x02]q\x00h\x00"
                    "a."s)
                .find("contain themselves"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x02}q\x00N\x68\x00s."s).find("contain themselves"), std::string::npos);
  EXPECT_NE(refusal("\x80\x02"
                    "ctorch\ndevice\n)\x81q\x00h\x00"
                    "b."s)
                .find("contain themselves"),
            std::string::npos);
}

// 2^levels values in 5 bytes for each level: every list holds the one before twice.
std::string doubled(int levels) {
  std::string pickle = "\x80\x02]\x94";
  for (int i = 0; i < levels; ++i)
    pickle += "](h" + std::string(1, static_cast<char>(i)) + "h" + std::string(1, static_cast<char>(i)) + "e\x94";
  return pickle + ".";
}

TEST(Pickle, SharingCannotUnfoldIntoMoreThanTheLimit) {
  EXPECT_NE(refusal(doubled(60)).find("bytes unfold into more than"), std::string::npos);
  // To print, write and read again so many values takes 100 MiB.
  EXPECT_NE(refusal(doubled(19)).find("bytes unfold into more than"), std::string::npos);
  EXPECT_TRUE(refusal(doubled(16)).starts_with("accepted: [[["));
  EXPECT_NE(refusal("\x80\x02](NNNNe.", {.always = 4, .per_byte = 0}).find("10 bytes unfold into more than 4 values"),
            std::string::npos);
  EXPECT_EQ(refusal("\x80\x02](NNNNe.", {.always = 5, .per_byte = 0}), "accepted: [None, None, None, None]");
}

// A text of `size` bytes as memo entry 0; the stack is empty afterwards.
std::string long_text(uint32_t size) {
  std::string pickle = "\x80\x02X";
  pickle.append(reinterpret_cast<const char*>(&size), sizeof(size));
  return pickle + std::string(size, 't') + "q" + std::string(1, '\0') + "0";
}

TEST(Pickle, SharedTextsCannotUnfoldIntoMoreThanTheLimit) {
  // Printed, this would be 10^5 texts of 10^5 bytes each.
  const std::string pickle = long_text(100'000) + "](" + repeated("h\0"s, 100'000) + "e.";
  EXPECT_NE(refusal(pickle).find("300014 bytes unfold into more than 2662256 values and bytes of text"),
            std::string::npos)
      << refusal(pickle).substr(0, 300);
}

TEST(Pickle, CallsShareTheirArguments) {
  // 10^5 calls with a tuple of 10^5 values: copies would take hundreds of gigabytes.
  const std::string call = "h\1h\0R0"s;
  const std::string pickle = "\x80\x02("s + repeated("N", 100'000) + "tq\0"s + "0ctorch\ndevice\nq\1"s + "0"s +
                             repeated(call, 100'000) + "h\1h\0R."s;
  const PickleValue value = read(pickle);
  EXPECT_EQ(value.type_name(), "torch.device");
  EXPECT_EQ(value.items().size(), 100'000U);
}

TEST(Pickle, ArgumentsOfTheResultOutliveTheTupleThatTheyCameIn) {
  // The tuple is part of the result's object alone, and a second object with it is not part of the result.
  const PickleValue value = read("\x80\x02K\1K\2\x86q\0ctorch\ndevice\nq\1h\0R0h\1h\0R."s);
  EXPECT_EQ(value.repr(), "torch.device(1, 2)");
}

TEST(Pickle, TextsAreNotEncodedAgainAndAgain) {
  const std::string encode = "h\1h\0X\6\0\0\0latin1\x86R0"s;
  const std::string pickle = long_text(100'000) + "c_codecs\nencode\nq\1"s + "0"s + repeated(encode, 100'000) + "N.";
  EXPECT_NE(refusal(pickle).find("texts that stand for bytes are used again and again"), std::string::npos);
  // What follows the pickle in its file allows no more.
  const std::string file =
      long_text(100'000) + "c_codecs\nencode\nq\1"s + "0"s + repeated(encode, 50) + "N." + repeated("x", 10'000'000);
  std::span<const std::byte> rest = std::as_bytes(std::span(file));
  EXPECT_THROW(read_first_pickle(rest, "test"), Error);
}

TEST(Pickle, DeepValuesOutsideTheResultAreDestroyedWithoutRecursion) {
  constexpr int kDeep = 300'000;
  EXPECT_EQ(refusal("\x80\x02N" + repeated("\x85", kDeep) + "0N."), "accepted: None");           // popped
  EXPECT_EQ(refusal("\x80\x02N" + repeated("\x85", kDeep) + "N."), "accepted: None");            // left on the stack
  EXPECT_EQ(refusal("\x80\x02N" + repeated("\x85", kDeep) + "q\0"s + "0N."), "accepted: None");  // remembered
  // Each object is the state of the next one.
  EXPECT_EQ(refusal("\x80\x02"
                    "ctorch\ndevice\nq\0"s +
                    "0N" +
                    repeated("q\1"
                             "0h\0)\x81h\1"
                             "b"s,
                             kDeep) +
                    "0N."),
            "accepted: None");
}

TEST(Pickle, BrokenStacksAreRefused) {
  for (const std::string& program :
       {"."s,      "a."s,    "NNa."s,   "Ns."s,   "}Ns."s, "}(Nu."s, "e."s,    "t."s,         "]("s,
        "](NNu."s, "0."s,    "(1N0."s,  "b."s,    "NNb."s, "R."s,    "\x93."s, "NN\x93."s,    "Q."s,
        "h\x00."s, "\x85."s, "(\x85."s, "\x94."s, "2."s,   "\x8f."s, "i."s,    "\x80\x01N."s, "\x80\x06N."s}) {
    EXPECT_EQ(refusal("\x80\x02" + program).find("test: pickle, byte"), 0U) << refusal("\x80\x02" + program);
  }
  EXPECT_NE(refusal("").find("no pickle of protocol 2"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1}").find("no pickle of protocol 2"), std::string::npos);
}

TEST(PickleFuzz, DamagedPicklesGiveAnErrorOrAValue) {
  std::mt19937 random(1);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string pickle = round % 2 == 0 ? kProtocol2 : kProtocol5;
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = 2 + random() % (pickle.size() - 2);
      if (random() % 3 == 0) {
        pickle.insert(at, pickle.substr(random() % pickle.size(), random() % 12));
      } else {
        pickle[at] = random() % 2 == 0 ? pickle[random() % pickle.size()] : static_cast<char>(random());
      }
    }
    try {
      EXPECT_FALSE(read(pickle).repr().empty());
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, accepted);
}

}  // namespace
}  // namespace titanium::checkpoint
