// Files that are small and valid in form, but announce more than any machine has, or repeat themselves without end.
#include <fstream>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/tensor_stats.h"
#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A checkpoint whose index is all that there is of it.
fs::path folder_with(const DcpTensor& tensor) {
  const fs::path folder = test::test_folder();
  DcpMetadata metadata;
  metadata.entries["w"] = tensor;
  for (const Box& chunk : tensor.chunks) metadata.locations[{"w", chunk.offset}] = {"__0_0.distcp", 0, 4, {}};
  write(folder / ".metadata", format_dcp_metadata(metadata));
  write(folder / "__0_0.distcp", "PK\x03\x04");
  return folder;
}

TEST(HostileFiles, ATensorThatIsNotThereIsNeitherListedNorAllocated) {
  constexpr int64_t kHuge = int64_t{1} << 58;
  for (const Shape& shape : {Shape{kHuge}, Shape{2, kHuge / 2}, Shape{kHuge, 1}, Shape{1 << 29, 1 << 29}}) {
    const fs::path folder =
        folder_with({.dtype = at::kFloat, .shape = shape, .chunks = {{Shape(shape.size(), 0), shape}}});
    const auto source = open_weights(folder);
    EXPECT_EQ(source->verify().damage.size(), 1U);
    EXPECT_THROW(stats_of(*source, "w"), Error);
  }
}

TEST(HostileFiles, ChunksThatAddUpBeyond64BitsDoNotCover) {
  constexpr int64_t kHuge = int64_t{1} << 58;
  DcpTensor tensor{.dtype = at::kFloat, .shape = {kHuge}, .chunks = {}};
  for (int i = 0; i < 64; ++i) tensor.chunks.push_back({{i}, {kHuge - 64}});
  const auto damage = open_weights(folder_with(tensor))->verify().damage;
  ASSERT_FALSE(damage.empty());
  EXPECT_NE(damage[0].find("chunks that do not cover it exactly once"), std::string::npos) << damage[0];
}

TEST(HostileFiles, ManyEmptyChunksAreLookedAtOnce) {
  std::vector<Box> boxes(200'000, Box{{0, 0}, {0, 4}});
  boxes.push_back({{0, 0}, {4, 4}});
  EXPECT_TRUE(cover_exactly(boxes, {4, 4}));
  boxes.push_back({{1, 1}, {1, 1}});
  EXPECT_EQ(find_overlap(boxes), std::pair(size_t{200'000}, size_t{200'001}));
  EXPECT_FALSE(cover_exactly(boxes, {4, 4}));
}

TEST(HostileFiles, ChunksThatOverlapInOneDimAreSweptAlongTheOther) {
  // Row i is cut at column i: along the columns, each chunk overlaps with nearly all others.
  constexpr int64_t kRows = 100'000;
  std::vector<Box> boxes;
  for (int64_t row = 0; row < kRows; ++row) {
    boxes.push_back({{0, row}, {row, 1}});
    boxes.push_back({{row, row}, {kRows - row, 1}});
  }
  EXPECT_TRUE(cover_exactly(boxes, {kRows, kRows}));
}

TEST(HostileFiles, SlicesAreContiguousInOrderAndSmall) {
  const Shape shape = {3, 1, 5, 7};
  for (const int64_t bytes : {1, 4, 12, 28, 60, 140, 300, 420, 10'000}) {
    int64_t next = 0;
    for_each_slice(shape, at::kFloat, bytes, [&](const Box& slice) {
      ASSERT_TRUE(lies_inside(slice, shape));
      EXPECT_LE(volume(slice.shape) * 4, std::max<int64_t>(bytes, 4));
      const auto& [a, b, c, d] = std::tuple(slice.offset[0], slice.offset[1], slice.offset[2], slice.offset[3]);
      EXPECT_EQ(((a + b) * 5 + c) * 7 + d, next) << bytes;
      next += volume(slice.shape);
    });
    EXPECT_EQ(next, volume(shape)) << bytes;
  }
}

TEST(HostileFiles, AVolumeBeyond64BitsHasASentence) {
  EXPECT_EQ(error_of([] { volume({int64_t{1} << 32, int64_t{1} << 32}); }),
            "shape [4294967296, 4294967296] has more elements than any memory.");
  EXPECT_EQ(volume({int64_t{1} << 32, int64_t{1} << 32, 0}), 0);
}

TEST(HostileFiles, AHeaderOf50000TensorsIsReadInOnePass) {
  SafetensorsHeader header;
  for (uint64_t i = 0; i < 50'000; ++i) header.entries.push_back({fmt::format("w{}", i), at::kByte, {1}, i, i + 1});
  const std::string file = format_safetensors_header(header) + std::string(50'000, 'x');
  EXPECT_EQ(parse_safetensors_header(std::as_bytes(std::span(file)), "f").entries.size(), 50'000U);
}

TEST(HostileFiles, ADeepIndexOfWeightsIsRefused) {
  const fs::path folder = test::test_folder();
  write(folder / "model.safetensors.index.json", "{\"weight_map\":" + std::string(1'000'000, '['));
  EXPECT_NE(error_of([&] { open_weights(folder); }).find("nests deeper than 64 arrays and objects"), std::string::npos);
}

TEST(HostileFiles, NamesCannotSteerATerminal) {
  SafetensorsHeader header;
  header.entries.push_back({"a\x1b[31m\n", at::kByte, {2}, 0, 1});
  const std::string file = format_safetensors_header(header) + "x";
  EXPECT_NE(error_of([&] {
              parse_safetensors_header(std::as_bytes(std::span(file)), "f");
            }).find(R"(f: tensor "a\x1b[31m\n": 1 bytes, but shape [2])"),
            std::string::npos);
}

TEST(HostileFiles, ALongKeyAboveManyValuesIsRefused) {
  // Each of the names would repeat the key: 10 GB.
  std::vector<std::pair<PickleValue, PickleValue>> entries;
  for (int i = 0; i < 20'000; ++i) entries.emplace_back(std::to_string(i), i);
  const auto value = PickleValue::dict({{std::string(500'000, 'k'), PickleValue::dict(entries)}});
  const fs::path file = test::test_folder() / "w.pt";
  write(file, torch_archive_of(value));
  EXPECT_NE(error_of([&] { open_weights(file); }).find("has names of more than"), std::string::npos);
}

TEST(HostileFiles, ManyValuesOfATorchFileAreReadInOnePass) {
  std::vector<std::pair<PickleValue, PickleValue>> entries;
  for (int i = 0; i < 200'000; ++i) entries.emplace_back(fmt::format("value{}", i), i);
  const fs::path file = test::test_folder() / "w.pt";
  write(file, torch_archive_of(PickleValue::dict(entries)));
  EXPECT_EQ(open_weights(file)->values().size(), 200'000U);
}

TEST(HostileFiles, SharedPathsOfTheIndexAreRefused) {
  // One tuple of 30,000 keys as the path of 10,000 names.
  std::string pickle = "\x80\x02(";
  for (int i = 0; i < 30'000; ++i) pickle += "K\x01";
  pickle += std::string(
      "tq\0"
      "0ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}(X\x13\0\0\0state_dict_metadata}X\x0c\0\0\0storage_"
      "data}X\x0c\0\0\0planner_data}(",
      118);
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = fmt::format("n{:07}", i);
    pickle += std::string("X\x08\0\0\0", 5) + name + std::string("h\0", 2);
  }
  pickle += "uub.";
  EXPECT_NE(error_of([&] { parse_dcp_metadata(std::as_bytes(std::span(pickle)), "f"); }).find("bytes unfold into more"),
            std::string::npos)
      << error_of([&] { parse_dcp_metadata(std::as_bytes(std::span(pickle)), "f"); });
}

}  // namespace
}  // namespace titanium::checkpoint
