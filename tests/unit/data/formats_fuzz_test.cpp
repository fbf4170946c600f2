// Random damage to files of tokens and archives: records or a sentence, never a crash or a huge allocation.
#include "tests/support/damaged_bytes.h"
#include "tests/support/data_files.h"
#include "tests/support/fuzz.h"
#include "titanium/data/document.h"

namespace titanium::data::testing {
namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Reads everything, forwards and then from some place, with limits that a good file stays under.
void read(const fs::path& path, std::mt19937_64& random, int64_t& good, int64_t& refused) {
  try {
    RecordSource source(path, {.reading = {.max_record_bytes = 1 << 16, .text_field = "tokens"}});
    const auto use = [](const Record& record) {
      return has_tokens(record) ? document_tokens(record).size() : document_text(record, "tokens").size();
    };
    int64_t records = 0;
    for (; records < 500; ++records) {
      const auto record = source.read(records);
      if (!record) break;
      ASSERT_LT(use(*record), size_t{1} << 20);
    }
    if (records > 0) use(*source.read(static_cast<int64_t>(random() % static_cast<uint64_t>(records))));
    ++good;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    ++refused;
  }
}

// Writes the files, one of them damaged, and reads the first.
void fuzz(const std::vector<std::pair<std::string, std::string>>& files) {
  const TemporaryFolder folder;
  int64_t good = 0, refused = 0;
  test::fuzz(250, [&](std::mt19937_64& random) {
    const size_t victim = random() % files.size();
    for (size_t i = 0; i < files.size(); ++i) {
      std::ofstream file(folder.path() / files[i].first, std::ios::binary);
      file << (i == victim ? test::damaged(files[i].second, random) : files[i].second);
    }
    read(folder.path() / files[0].first, random, good, refused);
  });
  EXPECT_GT(refused, 0);
  EXPECT_GT(good, 0);
}

TEST(FormatsFuzz, Megatron) {
  const std::string index = std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<int64_t>{1}) + '\x08' +
                            bytes_of(std::vector<int64_t>{3, 4}) + bytes_of(std::vector<int32_t>{2, 0, 5}) +
                            bytes_of(std::vector<int64_t>{0, 4, 4}) + bytes_of(std::vector<int64_t>{0, 1, 2, 3});
  fuzz({{"a.idx", index}, {"a.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7})}});
}

TEST(FormatsFuzz, Datatrove) {
  fuzz({{"a.ds", bytes_of(std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7})},
        {"a.ds.index", bytes_of(std::vector<int64_t>{2, 2, 5, 7})}});
}

TEST(FormatsFuzz, Arrays) {
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[2] = 6;
  fuzz({{"a.bin", bytes_of(header) + bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5, 6})}});
}

TEST(FormatsFuzz, Mds) {
  const std::string config =
      R"({"column_names":["id","tokens"],"column_encodings":["int","ndarray:uint16"],"column_sizes":[8,null]})";
  const std::string sample = bytes_of(std::vector<uint32_t>{6}) + bytes_of(std::vector<int64_t>{7}) +
                             std::string("\x04\x02", 2) + bytes_of(std::vector<uint16_t>{1, 2});
  const auto first = static_cast<uint32_t>(4 + 4 * 4 + config.size());
  const auto size = static_cast<uint32_t>(sample.size());
  fuzz({{"a.mds", bytes_of(std::vector<uint32_t>{3, first, first + size, first + 2 * size, first + 3 * size}) + config +
                      sample + sample + sample}});
}

TEST(FormatsFuzz, Tar) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, "a.tokens");
  put(124, "00000000005");
  put(148, "        ");
  header[156] = '0';
  put(257, "ustar");
  int sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  const std::string member = header + "hello" + std::string(507, '\0');
  fuzz({{"a.tar", member + member + member + std::string(1024, '\0')}});
}

}  // namespace
}  // namespace titanium::data::testing
