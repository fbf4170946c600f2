#include "titanium/base/text/printable.h"

#include <gtest/gtest.h>

namespace titanium {
namespace {

TEST(Printable, KeepsWordsOfAllScripts) {
  for (const char* text : {"layers.0.wq.weight", "Grüße, 世界 🎉", "C:\\data", ""}) EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("a\nb\r\tc\x7f"), "a\\nb\\r\\tc\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");                                  // the one-character form of ESC [
  EXPECT_EQ(printable("\u202egpj.exe"), "\\u202egpj.exe");  // writes backwards
  EXPECT_EQ(printable("one\u2028two"), "one\\u2028two");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff\x9b"), "\\xff\\x9b");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // ESC in a form that is too long
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xe4\xb8"), "\\xe4\\xb8");           // cut off
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, CutsLongTextsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef... (7 bytes)");
  EXPECT_EQ(printable("äöü", 3), "ä... (6 bytes)");
  EXPECT_LT(printable(std::string(1'000'000, '\x1b')).size(), 2000U);
}

}  // namespace
}  // namespace titanium
