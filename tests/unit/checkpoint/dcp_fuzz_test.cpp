// Damaged and hostile folders: an error or the right numbers, never a crash, a hang or memory without bounds.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <random>

#include "tests/support/test_folder.h"
#include "tests/support/whole_tensor.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"

namespace titanium::checkpoint {
namespace {

using test::test_folder;

const Shape kShape = {6, 40};

Tensor numbers() { return at::arange(volume(kShape), at::kFloat).reshape(kShape); }

void save(const std::filesystem::path& folder) {
  std::vector<DcpPart> parts;
  for (const int64_t rank : {0, 1}) {
    const Box box{{3 * rank, 0}, {3, 40}};
    const std::vector<DcpTensorItem> tensors = {{"w", kShape, box, box_of(numbers(), box), false, {"model", "w"}}};
    const std::vector<DcpObjectItem> objects = {{fmt::format("state.{}", rank), PickleValue::dict({{"step", 7}}), {}}};
    parts.push_back(write_dcp_files(folder, static_cast<int>(rank), tensors, objects));
  }
  publish_dcp(folder, parts, {{"step", "7"}});
}

// Reads everything there is, whatever it is by now. Returns "w" if it came through; undefined when refused.
Tensor read_all(const std::filesystem::path& folder) {
  Tensor found;
  const DcpReader reader(folder);
  reader.verify();
  for (const auto& [name, entry] : reader.metadata().entries) {
    try {
      if (std::holds_alternative<DcpTensor>(entry)) {
        const Tensor tensor = test::whole_tensor(reader, name);
        if (name == "w") found = tensor;
      } else {
        reader.read_object(name);
      }
    } catch (const Error&) {
    }
  }
  return found;
}

std::string damaged(std::string content, std::mt19937& random) {
  for (size_t changes = 1 + random() % 3; changes > 0 && !content.empty(); --changes) {
    const size_t at = random() % content.size();
    switch (random() % 6) {
      case 0:
        content.resize(at);
        break;
      case 1:
        content.insert(at, content.substr(random() % content.size(), random() % 50));
        break;
      case 2:
        content[at] = '\xff';
        break;
      default:
        content[at] = static_cast<char>(random());
    }
  }
  return content;
}

// A file that replaces another is flushed by some file systems, which takes longer than the rest of a round.
void replace(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);
  write_file_atomically(path, content);
}

struct Outcome {
  int refused = 0, same = 0, other = 0;
};

// Damages one of the files, again and again.
Outcome fuzz(const std::filesystem::path& folder, const std::vector<std::string>& files, int rounds) {
  std::map<std::string, std::string> good;
  for (const std::string& file : files) good[file] = read_file(folder / file, "file");
  std::mt19937 random(1);
  Outcome outcome;
  for (int round = 0; round < rounds; ++round) {
    const std::string& file = files[random() % files.size()];
    replace(folder / file, damaged(good.at(file), random));
    Tensor found;
    try {
      found = read_all(folder);
    } catch (const Error&) {
    }
    const bool is_same = found.defined() && found.sizes() == at::IntArrayRef(kShape) &&
                         found.scalar_type() == at::kFloat && found.equal(numbers());
    ++(!found.defined() ? outcome.refused : is_same ? outcome.same : outcome.other);
    replace(folder / file, good.at(file));
  }
  return outcome;
}

TEST(DcpFuzz, WithChecksumsDamageGivesAnErrorOrTheRightNumbers) {
  const auto folder = test_folder();
  save(folder);
  ASSERT_TRUE(read_all(folder).equal(numbers()));
  const Outcome outcome = fuzz(folder, {".metadata", "titanium.json", "__0_0.distcp", "__1_0.distcp"}, 1500);
  EXPECT_EQ(outcome.other, 0);
  EXPECT_GT(outcome.refused, 1000);
}

TEST(DcpFuzz, WithoutChecksumsDamageNeverCrashes) {
  const auto folder = test_folder();
  save(folder);
  std::filesystem::remove(folder / kSidecarFile);
  const Outcome outcome = fuzz(folder, {".metadata", "__0_0.distcp", "__1_0.distcp"}, 3000);
  EXPECT_GT(outcome.refused, 1000);
  EXPECT_GT(outcome.same, 0);
}

TEST(DcpFuzz, AnIndexThatWouldRunACommandIsRefusedAndRunsNothing) {
  const auto folder = test_folder();
  save(folder);
  std::filesystem::remove(folder / kSidecarFile);
  const auto proof = folder / "proof";
  const std::string command = "touch " + proof.string();
  write_file_atomically(folder / ".metadata", "\x80\x02" + fmt::format("cos\nsystem\n(S'{}'\ntR.", command));
  try {
    DcpReader reader(folder);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "names os.system", error.what());
  }
  EXPECT_FALSE(std::filesystem::exists(proof));
}

}  // namespace
}  // namespace titanium::checkpoint
