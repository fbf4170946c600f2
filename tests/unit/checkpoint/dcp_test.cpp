// Distributed checkpoints: every layout to every other, and one sentence for each flaw.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <fstream>
#include <random>

#include "tests/support/test_folder.h"
#include "tests/support/whole_tensor.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"

#define EXPECT_SAYS(message, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, message)

namespace titanium::checkpoint {
namespace {

using test::test_folder;

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

Tensor numbers(const Shape& shape) { return at::arange(volume(shape), at::kFloat).reshape(shape); }

// Cuts [begin, end) of dims 0 and 1 at these places.
std::vector<Box> grid(const Shape& shape, const std::vector<int64_t>& rows, const std::vector<int64_t>& columns) {
  std::vector<Box> boxes;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    for (size_t j = 0; j + 1 < columns.size(); ++j) {
      Box box = whole_box(shape);
      box.offset[0] = rows[i], box.shape[0] = rows[i + 1] - rows[i];
      box.offset[1] = columns[j], box.shape[1] = columns[j + 1] - columns[j];
      boxes.push_back(box);
    }
  }
  return boxes;
}

// One rank per box, `files` files each.
void save(const std::filesystem::path& folder, const std::string& name, const Tensor& tensor,
          const std::vector<Box>& boxes, int files = 1) {
  std::vector<DcpPart> parts;
  for (const Box& box : boxes) {
    const std::vector<DcpTensorItem> items = {{name, tensor.sizes().vec(), box, box_of(tensor, box), false, {}}};
    parts.push_back(write_dcp_files(folder, static_cast<int>(parts.size()), items, {}, files));
  }
  publish_dcp(folder, parts, {{"step", "7"}});
}

void publish(const std::filesystem::path& folder, const DcpPart& part) { publish_dcp(folder, std::span(&part, 1), {}); }

std::string read_failure(const std::filesystem::path& folder, const std::string& name = "w",
                         const Shape& shape = {6, 4}, Dtype dtype = at::kFloat) {
  try {
    const Tensor destination = at::empty(shape, at::TensorOptions(dtype));
    DcpReader(folder).read_box(name, shape, whole_box(shape), destination);
    return "read";
  } catch (const Error& error) {
    return error.what();
  }
}

// The metadata of the folder, changed, as from torch: without titanium.json.
template <typename Change>
void change_metadata(const std::filesystem::path& folder, const Change& change) {
  DcpMetadata metadata = DcpReader(folder).metadata();
  change(metadata);
  std::filesystem::remove(folder / kSidecarFile);
  write_file_atomically(folder / ".metadata", format_dcp_metadata(metadata));
}

TEST(Dcp, AnyBoxIsReadFromAnyLayout) {
  const auto folder = test_folder();
  const Tensor tensor = numbers({7, 5, 3});
  std::mt19937 random(1);
  const std::vector<std::vector<Box>> layouts = {
      {whole_box({7, 5, 3})}, grid({7, 5, 3}, {0, 2, 4, 6, 7}, {0, 5}), grid({7, 5, 3}, {0, 3, 7}, {0, 1, 5, 5})};
  for (size_t layout = 0; layout < layouts.size(); ++layout) {
    save(folder / std::to_string(layout), "w", tensor, layouts[layout]);
    const DcpReader reader(folder / std::to_string(layout));
    EXPECT_TRUE(test::whole_tensor(reader, "w").equal(tensor));
    for (int round = 0; round < 50; ++round) {
      Box box;
      for (const int64_t size : {7, 5, 3}) {
        box.offset.push_back(static_cast<int64_t>(random()) % size);
        box.shape.push_back(static_cast<int64_t>(random()) % (size - box.offset.back() + 1));
      }
      const Tensor destination = at::empty(box.shape, at::TensorOptions(at::kFloat));
      reader.read_box("w", {7, 5, 3}, box, destination);
      EXPECT_TRUE(destination.equal(box_of(tensor, box))) << to_string(box);
    }
  }
}

TEST(Dcp, FloatingPointIsConvertedAlsoIntoViewsAndInBlocks) {
  const auto folder = test_folder();
  const Tensor tensor = numbers({3, 1'500'000});
  save(folder, "w", tensor, {whole_box({3, 1'500'000})});
  const DcpReader reader(folder);
  const Tensor wide = at::full({1'500'000, 3}, -1, at::TensorOptions(at::kBFloat16));
  reader.read_box("w", {3, 1'500'000}, whole_box({3, 1'500'000}), wide.t());
  EXPECT_TRUE(wide.t().equal(tensor.to(at::kBFloat16)));
  const Tensor same = at::full({1'500'000, 2}, -1, at::TensorOptions(at::kFloat));
  reader.read_box("w", {3, 1'500'000}, {{1, 0}, {2, 1'500'000}}, same.t());
  EXPECT_TRUE(same.t().equal(tensor.narrow(0, 1, 2)));
}

TEST(Dcp, ObjectsScalarsAndEmptyTensorsAreReadAgain) {
  const auto folder = test_folder();
  const std::vector<DcpTensorItem> tensors = {
      {"scalar", {}, whole_box({}), at::full({}, 2.5), true, {"optimizer", "state", 0}},
      {"empty", {0, 3}, whole_box({0, 3}), at::empty({0, 3}), false, {}},
      {"none of it", {4}, {{4}, {0}}, at::empty({0}), false, {}}};
  const std::vector<DcpObjectItem> objects = {{"train_state", PickleValue::dict({{"step", 5}}), {}}};
  publish(folder, write_dcp_files(folder, 0, tensors, objects));
  const DcpReader reader(folder);
  EXPECT_EQ(test::whole_tensor(reader, "scalar").item<double>(), 2.5);
  EXPECT_TRUE(reader.tensor("scalar").requires_grad);
  EXPECT_EQ(reader.metadata().paths.at("scalar"), DcpPath({"optimizer", "state", 0}));
  EXPECT_EQ(reader.metadata().paths.at("empty"), DcpPath({"empty"}));
  EXPECT_EQ(test::whole_tensor(reader, "empty").sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TRUE(reader.tensor("none of it").chunks.empty());
  EXPECT_EQ(reader.read_object("train_state").at("step").as_int(), 5);
  EXPECT_EQ(reader.metadata().version, "1.0.0");
  EXPECT_THROW(reader.read_object("scalar"), Error);
  EXPECT_THROW(test::whole_tensor(reader, "train_state"), Error);
}

TEST(Dcp, FilesOfARankHaveAboutTheSameSize) {
  const auto folder = test_folder();
  std::vector<DcpTensorItem> items;
  for (int i = 1; i <= 20; ++i) {
    const Shape shape = {i, 5000};
    items.push_back({std::to_string(i), shape, whole_box(shape), numbers(shape), false, {}});
  }
  publish(folder, write_dcp_files(folder, 3, items, {}, 4));
  uintmax_t smallest = UINTMAX_MAX, largest = 0;
  for (int k = 0; k < 4; ++k) {
    const auto size = std::filesystem::file_size(folder / fmt::format("__3_{}.distcp", k));
    smallest = std::min(smallest, size), largest = std::max(largest, size);
  }
  EXPECT_LT(static_cast<double>(largest), 1.1 * static_cast<double>(smallest));
  const DcpReader reader(folder);
  for (const DcpTensorItem& item : items) EXPECT_TRUE(test::whole_tensor(reader, item.name).equal(item.tensor));
}

TEST(Dcp, RanksThatDisagreeAreRefused) {
  const auto folder = test_folder();
  const auto part = [&](int rank, const Shape& shape, const Box& box, Dtype dtype = at::kFloat) {
    const Tensor tensor = at::empty(box.shape, at::TensorOptions(dtype));
    const std::vector<DcpTensorItem> items = {{"w", shape, box, tensor, false, {}}};
    return write_dcp_files(folder, rank, items, {});
  };
  const auto failure = [&](const DcpPart& a, const DcpPart& b) -> std::string {
    try {
      publish_dcp(folder, std::vector{a, b}, {});
      return "merged";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const DcpPart first = part(0, {4}, {{0}, {2}});
  EXPECT_EQ(failure(first, part(1, {4}, {{2}, {2}})), "merged");
  EXPECT_SAYS(failure(first, part(1, {4}, {{1}, {2}})), ("chunks [0:2] and [1:3] of tensor \"w\" overlap"));
  EXPECT_SAYS(failure(first, part(1, {5}, {{2}, {2}})), ("has shape [4] and dtype float32 on one rank, but [5]"));
  EXPECT_SAYS(failure(first, part(1, {4}, {{2}, {2}}, at::kHalf)), ("and float16 on another"));
  const std::vector<DcpObjectItem> object = {{"w", 5, {}}};
  EXPECT_SAYS(failure(first, write_dcp_files(folder, 1, {}, object)), ("\"w\" was written by two ranks"));
}

TEST(DcpFlaws, WhatIsMissingIsNamed) {
  const auto folder = test_folder();
  EXPECT_SAYS(read_failure(folder / "none"), ("none does not exist"));
  EXPECT_SAYS(read_failure(folder), ("has no file .metadata"));
  save(folder, "w", numbers({6, 4}), grid({6, 4}, {0, 3, 6}, {0, 4}));
  EXPECT_EQ(read_failure(folder), "read");
  EXPECT_SAYS(read_failure(folder, "ww"), ("nothing named \"ww\" (the nearest is \"w\")"));
  std::filesystem::remove(folder / "__1_0.distcp");
  EXPECT_SAYS(read_failure(folder), ("\"w\" lies in __1_0.distcp, which is missing"));
}

TEST(DcpFlaws, WrongShapesAndDtypesAreNamed) {
  const auto folder = test_folder();
  save(folder, "w", numbers({6, 4}), {whole_box({6, 4})});
  EXPECT_SAYS(read_failure(folder, "w", {6, 5}), ("\"w\" has shape [6, 4], but [6, 5] is expected"));
  EXPECT_SAYS(read_failure(folder, "w", {6, 4}, at::kLong), ("has dtype float32, but int64 is expected"));
  change_metadata(folder, [](DcpMetadata& m) { std::get<DcpTensor>(m.entries.at("w")).dtype = at::kDouble; });
  EXPECT_SAYS(read_failure(folder), ("stored as float32 of shape [6, 4], but the metadata say float64"));
}

TEST(DcpFlaws, FilesThatAreTooShortOrChangedAreFound) {
  const auto folder = test_folder();
  save(folder, "w", numbers({6, 4}), {whole_box({6, 4})});
  const std::string content = read_file(folder / "__0_0.distcp", "file");
  for (const size_t size : {size_t{0}, size_t{1}, content.size() / 2, content.size() - 1}) {
    std::filesystem::resize_file(folder / "__0_0.distcp", size);
    EXPECT_SAYS(read_failure(folder), (fmt::format("which has only {}.", size)));
  }
  write_file_atomically(folder / "__0_0.distcp", content);
  change_metadata(folder, [](DcpMetadata& m) { m.locations.begin()->second.offset = INT64_MAX; });
  EXPECT_SAYS(read_failure(folder), ("takes bytes 9223372036854775807 to"));
  change_metadata(folder, [](DcpMetadata& m) { m.locations.begin()->second = {"__0_0.distcp", 0, 100, {}}; });
  EXPECT_SAYS(read_failure(folder), ("without the end of a zip archive"));

  std::string flipped = content;
  flipped[flipped.find(std::string("\0\0\xb8\x41", 4))] ^= 1;  // 23.0f
  write_file_atomically(folder / "__0_0.distcp", flipped);
  change_metadata(folder,
                  [&](DcpMetadata& m) { m.locations.begin()->second.length = static_cast<int64_t>(content.size()); });
  EXPECT_SAYS(read_failure(folder), ("is damaged (checksum of bytes"));
  EXPECT_EQ(DcpReader(folder).verify().size(), 1);
}

TEST(DcpFlaws, ChunksThatDoNotCoverTheBoxAreRefused) {
  const auto folder = test_folder();
  save(folder, "w", numbers({6, 4}), grid({6, 4}, {0, 3, 6}, {0, 4}));
  change_metadata(folder, [](DcpMetadata& m) { std::get<DcpTensor>(m.entries.at("w")).chunks.pop_back(); });
  EXPECT_SAYS(read_failure(folder), ("chunks that do not cover [0:6, 0:4] exactly once"));
  change_metadata(folder, [](DcpMetadata& m) {  // twice as much in one place makes up for nothing in another
    auto& chunks = std::get<DcpTensor>(m.entries.at("w")).chunks;
    chunks.push_back(chunks.front());
  });
  EXPECT_SAYS(read_failure(folder), ("do not cover [0:6, 0:4] exactly once"));
}

TEST(DcpFlaws, MetadataThatDoNotFitTogetherAreRefused) {
  const auto folder = test_folder();
  save(folder, "w", numbers({6, 4}), {whole_box({6, 4})});
  const DcpMetadata good = DcpReader(folder).metadata();
  const auto failure = [&](const auto& change) -> std::string {
    DcpMetadata metadata = good;
    change(metadata, std::get<DcpTensor>(metadata.entries.at("w")));
    const std::string bytes = format_dcp_metadata(metadata);
    try {
      parse_dcp_metadata(std::as_bytes(std::span(bytes)), ".metadata");
      return "parsed";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto location = [](DcpMetadata& m) -> DcpLocation& { return m.locations.begin()->second; };
  EXPECT_EQ(failure([](auto&, auto&) {}), "parsed");
  EXPECT_SAYS(failure([](auto&, auto& w) { w.chunks[0].shape = {7, 4}; }),
              ("of shape [6, 4] has a chunk of shape [7, 4] at [0, 0]. "));
  EXPECT_SAYS(failure([&](auto& m, auto& w) {
                w.chunks[0] = {{4, 0}, {3, 4}};
                m.locations[{"w", w.chunks[0].offset}] = location(m);
              }),
              ("of shape [6, 4] has a chunk of shape [3, 4] at [4, 0]. "));
  EXPECT_SAYS(failure([](auto&, auto& w) { w.chunks[0].shape = {4}; }), ("has a chunk of shape [4] at [0, 0]. "));
  EXPECT_SAYS(failure([](auto&, auto& w) { w.chunks[0].shape = {6, 4, 9}; }),
              ("a chunk of shape [6, 4, 9] at [0, 0]. "));
  EXPECT_SAYS(failure([](auto&, auto& w) { w.shape = {int64_t{1} << 40, int64_t{1} << 40}; }),
              ("larger than any memory"));
  EXPECT_SAYS(failure([&](auto& m, auto&) { location(m).file = "../../etc/passwd"; }),
              ("lies in '../../etc/passwd', which is not the name of a file beside the metadata"));
  EXPECT_SAYS(failure([&](auto& m, auto&) { location(m).length = -1; }), ("has -1 bytes"));
}

TEST(DcpFlaws, EveryTruncationOfTheMetadataIsRefused) {
  const auto folder = test_folder();
  save(folder, "w", numbers({6, 4}), grid({6, 4}, {0, 3, 6}, {0, 4}));
  const std::string content = read_file(folder / ".metadata", "metadata");
  for (size_t length = 0; length < content.size(); ++length) {
    EXPECT_THROW(parse_dcp_metadata(std::as_bytes(std::span(content)).first(length), ".metadata"), Error) << length;
  }
}

}  // namespace
}  // namespace titanium::checkpoint
