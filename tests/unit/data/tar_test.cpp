// Archives of WebDataset.
#include "tests/support/data_files.h"
#include "tests/support/data_format_bytes.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

std::string archive(const std::vector<std::string>& texts) {
  std::string bytes;
  for (size_t i = 0; i < texts.size(); ++i) {
    bytes += tar_member(fmt::format("part/{:06}.jpg", i), std::string(i % 5 * 300, '\xff'));
    if (i % 7 == 0) bytes += tar_member("././@LongLink", std::string(120, 'x') + fmt::format("{}.txt", i), 'L');
    constexpr char kKinds[] = {'0', '\0', '7'};  // all of them are plain files
    bytes += tar_member(fmt::format("part/{:06}.txt", i), texts[i], kKinds[i % 3]);
    bytes += tar_member(fmt::format("part/{:06}.caption.txt", i), "another member");
  }
  return bytes + std::string(1024, '\0');
}

std::vector<std::string> read_all(const fs::path& path, const RecordSourceOptions& options = {}) {
  RecordSource source(path, options);
  std::vector<std::string> texts;
  for (int64_t i = 0; auto record = source.read(i); ++i) texts.push_back(document_text(*record, "text"));
  return texts;
}

TEST(Tar, TextMembersAreRecords) {
  const TemporaryFolder folder;
  const auto texts = make_documents(1500);
  EXPECT_EQ(read_all(folder.write("a.tar", archive(texts))), texts);
  EXPECT_EQ(read_all(folder.write("b.tar.gz", gzip(archive(texts)))), texts);
  EXPECT_EQ(read_all(folder.write("unnamed", archive(texts))), texts);
  EXPECT_EQ(read_all(folder.path() / "a.tar", {.reading = {.text_field = "caption.txt"}}).at(3), "another member");
}

TEST(Tar, PaxHeadersNameMembers) {
  const TemporaryFolder folder;
  const std::string name = std::string(150, 'd') + "/1.txt";
  const std::string record = fmt::format(" path={}\n", name);
  const auto path =
      folder.write("a.tar", tar_member("PaxHeaders/1", fmt::format("{}{}", record.size() + 3, record), 'x') +
                                tar_member("short", "text"));
  EXPECT_EQ(read_all(path), std::vector<std::string>{"text"});
}

TEST(Tar, IsEnteredInTheMiddle) {
  const TemporaryFolder folder;
  const auto texts = make_documents(3000);
  const auto path = folder.write("a.tar", archive(texts));
  RecordSource first(path, {});
  const Anchor anchor = first.read(2900)->entrance();
  EXPECT_GT(anchor.offset, 0);
  RecordSource second(path, {});
  second.add_anchor(anchor);
  EXPECT_EQ(document_text(*second.read(2901), "text"), texts[2901]);
  Anchor wrong = anchor;
  wrong.offset += 1;
  EXPECT_NE(error_of([&] { second.add_anchor(wrong); }).find("is not the beginning of a record"), std::string::npos);
}

// Header and content disagree: what is not there is not allocated either.
TEST(Tar, ASizeThatTheFileDoesNotHaveIsRefused) {
  const TemporaryFolder folder;
  const std::string pax = tar_member("pax", fmt::format("30 size={}\n", int64_t{1} << 45), 'x');
  const auto path = folder.write("a.tar", pax + tar_member("part/a.txt", "text"));
  EXPECT_NE(error_of([&] {
              read_all(path, {.reading = {.max_record_bytes = int64_t{1} << 46}});
            }).find("ends inside a member"),
            std::string::npos);
}

TEST(Tar, DamageHasASentence) {
  const TemporaryFolder folder;
  const std::string whole = archive(make_documents(10));
  const auto cut = folder.write("a.tar", whole.substr(0, 700));
  EXPECT_EQ(
      error_of([&] { read_all(cut); }),
      fmt::format("Data file {} ends inside a member: it is no archive of tar or damaged. Fetch or make it again.",
                  cut.string()));
  std::string damaged = whole;
  damaged[3] = '!';
  EXPECT_NE(error_of([&] { read_all(folder.write("b.tar", damaged)); }).find("has no header of a member at byte 0"),
            std::string::npos);
}

}  // namespace
}  // namespace titanium::data::testing
