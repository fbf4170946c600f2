// Checksums of distributed checkpoints: what has changed is found, wherever it is, and nothing else is refused.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <random>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/checkpoint/torch_file/archive.h"

#define EXPECT_SAYS(message, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, message)

namespace titanium::checkpoint {
namespace {

using test::test_folder;

constexpr int64_t kBlock = kSumBlock;
const Shape kShape = {5, 1 << 19};  // doubles: five blocks of 4 MiB, and a head

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Tensor numbers(const Shape& shape) { return at::arange(volume(shape), at::kDouble).reshape(shape); }

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

template <typename Do>
std::string failure(const Do& act) {
  try {
    act();
    return "none";
  } catch (const Error& error) {
    return error.what();
  }
}

void save(const std::filesystem::path& folder, const Shape& shape = kShape) {
  const std::vector<DcpTensorItem> tensors = {{"w", shape, whole_box(shape), numbers(shape), false, {}}};
  const std::vector<DcpObjectItem> objects = {{"train_state", PickleValue::dict({{"step", 7}}), {}}};
  const DcpPart part = write_dcp_files(folder, 0, tensors, objects, 1);
  publish_dcp(folder, std::span(&part, 1), {{"step", "7"}, {"layout", "dp_shard=2, tp=\"4\""}});
}

std::string read_failure(const std::filesystem::path& folder, const Box& box = whole_box(kShape),
                         const Shape& shape = kShape) {
  return failure([&] {
    const Tensor destination = at::empty(box.shape, at::TensorOptions(at::kDouble));
    DcpReader(folder).read_box("w", shape, box, destination);
    EXPECT_TRUE(destination.equal(box_of(numbers(shape), box)));
  });
}

void flip(const std::filesystem::path& path, size_t position) {
  std::string content = read_file(path, "file");
  content.at(position) ^= 1;
  write_file_atomically(path, content);
}

TEST(FileSums, AnyPiecesGiveTheSameSumsAndChecksums) {
  std::string content(3 * kBlock / 2, '\0');
  std::mt19937 random(1);
  for (char& c : content) c = static_cast<char>(random());
  const FileSum expected{
      "f", content.size(), {crc32(bytes_of(content).first(kBlock)), crc32(bytes_of(content).subspan(kBlock))}};
  EXPECT_EQ(sum_of("f", bytes_of(content)), expected);
  FileSummer summer;
  for (auto rest = bytes_of(content); !rest.empty();) {
    const auto piece = rest.first(std::min<size_t>(rest.size(), 1 + random() % 1'000'000));
    const size_t cut = random() % piece.size();
    summer.add(piece.first(cut));
    summer.add(piece.subspan(cut));
    EXPECT_EQ(summer.take_crc(), crc32(piece));
    rest = rest.subspan(piece.size());
  }
  EXPECT_EQ(summer.finish("f"), expected);
  EXPECT_EQ(sum_of("f", {}), (FileSum{"f", 0, {}}));
}

TEST(DcpIntegrity, FactsAndSumsAreReadAgain) {
  const auto folder = test_folder();
  save(folder);
  const DcpReader reader(folder);
  EXPECT_EQ(reader.facts().at("step"), "7");
  EXPECT_EQ(reader.facts().at("layout"), "dp_shard=2, tp=\"4\"");
  EXPECT_TRUE(reader.verify().empty());
  const std::string sidecar = read_file(folder / kSidecarFile, "file");
  const auto sums = parse_sidecar(bytes_of(sidecar), "sidecar").sums;
  for (const std::string file : {".metadata", "__0_0.distcp"}) {
    EXPECT_EQ(sums.at(file), sum_of(file, bytes_of(read_file(folder / file, "file"))));
  }
}

TEST(DcpIntegrity, PartsSurviveTheWayToAnotherRank) {
  const auto folder = test_folder();
  const std::vector<DcpTensorItem> tensors = {{"w", {4}, {{1}, {2}}, numbers({2}), false, {"model", "w"}}};
  const DcpPart part = write_dcp_files(folder, 3, tensors, {});
  const std::string sent = format_dcp_part(part);
  const DcpPart received = parse_dcp_part(bytes_of(sent), "part of rank 3");
  EXPECT_EQ(received.sums, part.sums);
  EXPECT_EQ(format_dcp_metadata(received.metadata), format_dcp_metadata(part.metadata));
  for (const size_t length : {size_t{0}, size_t{15}, size_t{20}, sent.size() - 1}) {
    EXPECT_SAYS(failure([&] { parse_dcp_part(bytes_of(sent).first(length), "part of rank 3"); }), ("part of rank 3"));
  }
}

TEST(DcpIntegrity, AFlippedByteIsFoundByWhoeverReadsItsBlockAndByNobodyElse) {
  const auto folder = test_folder();
  save(folder);
  flip(folder / "__0_0.distcp", 2 * kBlock + 12345);
  EXPECT_EQ(read_failure(folder),
            folder.string() +
                ": \"w\" lies in __0_0.distcp, which is damaged (checksum of bytes 8388608 to 12582912 "
                "differs). Copy the checkpoint again, or use another step.");
  EXPECT_SAYS(read_failure(folder, {{2, 7}, {1, 1}}), ("is damaged"));
  EXPECT_EQ(read_failure(folder, {{0, 0}, {1, 1 << 19}}), "none");
  EXPECT_EQ(read_failure(folder, {{4, 0}, {1, 1 << 19}}), "none");
  const auto problems = DcpReader(folder).verify();
  ASSERT_EQ(problems.size(), 1);
  EXPECT_EQ(problems[0].file, "__0_0.distcp");
  EXPECT_SAYS(problems[0].message, ("__0_0.distcp is damaged (checksum of bytes 8388608 to 12582912 differs)"));
}

TEST(DcpIntegrity, AFlippedByteIsFoundInFilesOfTorchToo) {
  const auto folder = test_folder();
  save(folder);
  std::filesystem::remove(folder / kSidecarFile);
  EXPECT_TRUE(DcpReader(folder).facts().empty());
  EXPECT_TRUE(DcpReader(folder).verify().empty());
  EXPECT_EQ(read_failure(folder), "none");
  flip(folder / "__0_0.distcp", 2 * kBlock + 12345);
  EXPECT_SAYS(read_failure(folder), ("\"w\" lies in __0_0.distcp, which is damaged (checksum of bytes "));
  EXPECT_EQ(read_failure(folder, {{0, 0}, {1, 1 << 19}}), "none");
  EXPECT_EQ(DcpReader(folder).verify().size(), 1);
}

TEST(DcpIntegrity, AFlippedByteOfAnObjectIsFound) {
  for (const bool has_sidecar : {true, false}) {
    const auto folder = test_folder();
    save(folder);
    if (!has_sidecar) std::filesystem::remove(folder / kSidecarFile);
    const auto place = DcpReader(folder).metadata().locations.at({"train_state", std::nullopt});
    EXPECT_EQ(DcpReader(folder).read_object("train_state").at("step").as_int(), 7);
    const std::string content = read_file(folder / place.file, "file");
    flip(folder / place.file, content.find("step"));
    EXPECT_THROW(DcpReader(folder).read_object("train_state"), Error) << has_sidecar;
    EXPECT_EQ(DcpReader(folder).verify().size(), 1) << has_sidecar;
  }
}

TEST(DcpIntegrity, OnlyTheBlocksOfTheBoxAreRead) {
  const auto folder = test_folder();
  const Shape shape = {3, 4, 1 << 18};  // 8 MiB for each index of dim 0
  save(folder, shape);
  for (const int64_t block : {1, 3, 5}) flip(folder / "__0_0.distcp", block * kBlock + kBlock / 2);
  EXPECT_EQ(read_failure(folder, {{0, 1, 0}, {3, 1, 100}}, shape), "none");  // three places with large gaps
  EXPECT_SAYS(read_failure(folder, {{0, 1, 0}, {3, 2, 100}}, shape), ("is damaged"));
}

TEST(DcpIntegrity, ElementsThatReachOverTheEndOfABlockAreRead) {
  const auto folder = test_folder();
  save(folder);
  std::string content = read_file(folder / "__0_0.distcp", "file");
  DcpMetadata metadata = DcpReader(folder).metadata();
  for (auto& [index, location] : metadata.locations) location.offset += 3;  // torch aligns nothing
  write_file_atomically(folder / "__0_0.distcp", "abc" + content);
  write_file_atomically(folder / ".metadata", format_dcp_metadata(metadata));
  EXPECT_SAYS(read_failure(folder), (".metadata does not have the checksum that titanium.json says"));
  std::filesystem::remove(folder / kSidecarFile);
  EXPECT_EQ(read_failure(folder), "none");
  EXPECT_EQ(read_failure(folder, {{0, 1000}, {5, 500'000}}), "none");
}

TEST(DcpIntegrity, ManyRequestsAreReadTogetherByAnyNumberOfThreads) {
  const auto folder = test_folder();
  save(folder);
  const DcpReader reader(folder);
  for (const int threads : {0, 1, 3, 16}) {
    std::vector<DcpRequest> requests;
    for (int64_t row = 0; row < 5; ++row) {
      const Box box{{row, row}, {1, 500'000}};
      requests.push_back(
          {"w", kShape, box, at::empty(box.shape, at::TensorOptions(row == 3 ? at::kFloat : at::kDouble))});
    }
    reader.read(requests, threads);
    for (const DcpRequest& request : requests) {
      EXPECT_TRUE(
          request.destination.equal(box_of(numbers(kShape), request.box).to(request.destination.scalar_type())));
    }
  }
}

TEST(DcpIntegrity, VerifyNamesEveryFileThatIsMissingShortOrChanged) {
  const auto folder = test_folder();
  std::vector<DcpPart> parts;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<DcpTensorItem> items = {{"w", {8, 100}, {{2 * rank, 0}, {2, 100}}, numbers({2, 100}), false, {}}};
    parts.push_back(write_dcp_files(folder, rank, items, {}));
  }
  publish_dcp(folder, parts, {});
  EXPECT_TRUE(DcpReader(folder).verify().empty());
  std::filesystem::remove(folder / "__0_0.distcp");
  std::filesystem::resize_file(folder / "__1_0.distcp", 1000);
  flip(folder / "__3_0.distcp", 1500);
  const auto problems = DcpReader(folder).verify();
  ASSERT_EQ(problems.size(), 3);
  EXPECT_SAYS(problems[0].message, ("\"w\" lies in __0_0.distcp, which is missing"));
  EXPECT_SAYS(problems[1].message, ("of __1_0.distcp, which has only 1000"));
  EXPECT_SAYS(problems[2].message, ("__3_0.distcp is damaged (checksum of bytes 0 to"));
}

TEST(DcpIntegrity, FilesThatGrewAreRefused) {
  const auto folder = test_folder();
  save(folder, {6, 4});
  write_file_atomically(folder / "__0_0.distcp", read_file(folder / "__0_0.distcp", "file") + "more");
  EXPECT_SAYS(read_failure(folder, whole_box({6, 4}), {6, 4}), ("bytes, but titanium.json says"));
}

TEST(DcpIntegrity, ADamagedSidecarIsRefusedAndAMissingOneIsNot) {
  const auto folder = test_folder();
  save(folder, {6, 4});
  const std::string good = read_file(folder / kSidecarFile, "file");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    EXPECT_SAYS(failure([&] { parse_sidecar(bytes_of(bad), "titanium.json"); }),
                ("titanium.json: the bytes have changed since they were written"));
    EXPECT_THROW(parse_sidecar(bytes_of(good).first(i), "titanium.json"), Error);
  }
  write_file_atomically(folder / kSidecarFile, "{}");
  EXPECT_SAYS(failure([&] { DcpReader reader(folder); }), ("titanium.json: the bytes have changed"));
  std::filesystem::remove(folder / kSidecarFile);
  EXPECT_EQ(read_failure(folder, whole_box({6, 4}), {6, 4}), "none");
}

TEST(DcpIntegrity, ASidecarThatMakesNoSenseIsRefused) {
  const auto refusal = [](const std::string& members) {
    std::string text = "{" + members;
    text += fmt::format(",\"checksum\":\"{:08x}\"}}\n", crc32(bytes_of(text)));
    return failure([&] { parse_sidecar(bytes_of(text), "titanium.json"); });
  };
  EXPECT_EQ(refusal(R"("version":1,"facts":{},"files":{"f":{"size":3,"blocks":"0123abcd"}})"), "none");
  EXPECT_SAYS(refusal(R"("version":2,"facts":{},"files":{})"), ("this is version 2, but 1 is expected"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{})"), ("titanium.json: "));
  EXPECT_SAYS(refusal(R"("version":1,"facts":[5],"files":{})"), ("titanium.json: "));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"f":{"size":3,"blocks":""}})"), ("0 digits of checksums"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"f":{"size":9223372036854775807,"blocks":"0123abcd"}})"),
              ("of 9223372036854775807 bytes has 8 digits"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"f":{"size":18446744073709551615,"blocks":"0123abcd"}})"),
              ("titanium.json has 18446744073709551615 where an integer belongs"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"f":{"size":-1,"blocks":"0123abcd"}})"), ("has 8 digits"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"f":{"size":3,"blocks":"0123abcx"}})"), ("no number"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":{},"files":{"../f":{"size":0,"blocks":""}})"), ("../f"));
  EXPECT_SAYS(refusal(R"("version":1,"facts":)"), ("titanium.json is not valid JSON"));
}

}  // namespace
}  // namespace titanium::checkpoint
