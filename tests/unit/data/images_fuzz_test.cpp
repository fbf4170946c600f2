// Random damage to archives of pictures: samples or a sentence, never a crash. tests/fuzz/images.cpp searches longer.
#include "tests/support/data_files.h"
#include "tests/support/fuzz.h"
#include "tests/support/source_folder.h"
#include "titanium/data/document.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/decode.h"
#include "titanium/data/image/image_text.h"
#include "titanium/data/image/resize.h"

namespace titanium::data::testing {
namespace {

// A few bytes changed, or the end cut off.
std::string damaged(std::string bytes, std::mt19937_64& random) {
  if (random() % 8 == 0) bytes.resize(random() % bytes.size());
  for (uint64_t edits = random() % 12; edits > 0 && !bytes.empty(); --edits)
    bytes[random() % bytes.size()] = static_cast<char>(random());
  return bytes;
}

TEST(ImagesFuzz, DamagedArchivesGiveSamplesOrASentence) {
  const TemporaryFolder folder;
  RecordSource bundled(source_folder() / "tests/assets/coco_test", {.reading = {.whole_samples = true}});
  std::string whole;
  for (int64_t i = 0; i < 4; ++i) whole += bundled.read(i)->bytes;  // two JPEG, a PNG, a WebP
  whole += tar_end();
  int64_t good = 0, refused = 0;
  test::fuzz(150, [&](std::mt19937_64& random) {
    const auto path = folder.write("a.tar", damaged(whole, random));
    try {
      RecordSource source(path, {.reading = {.max_record_bytes = 1 << 20, .whole_samples = true}});
      for (int64_t i = 0; const auto record = source.read(i); ++i) {
        try {
          const Image image = decode_image(image_text(*record).image);
          const auto cut = square_cut(image.width, image.height, 32);
          EXPECT_EQ(cut ? square_of(image, 32, *cut, 0).size() : 3072, 3U * 32 * 32);
          ++good;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()), "");
          ++refused;
        }
      }
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
      ++refused;
    }
  });
  EXPECT_GT(good, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace titanium::data::testing
