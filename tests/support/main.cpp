#include <fstream>

#include "tests/support/test_folder.h"
#include "titanium/base/machine/cpu_tiles.h"

namespace titanium::test {
namespace {

class AroundEachTest : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override { std::filesystem::remove_all(folder_of(test)); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    std::filesystem::remove_all(folder_of(test));
    if (test.result()->Skipped()) note_skipped(test);
  }

  // One line for run_tests.sh, which tells what was skipped and why.
  static void note_skipped(const ::testing::TestInfo& test) {
    const char* file = std::getenv("TITANIUM_SKIPPED");
    if (file == nullptr) return;
    std::string reason;
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const ::testing::TestPartResult& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) reason = part.message();
    }
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    std::ofstream(file, std::ios::app) << fmt::format("{}.{}: {}\n", test.test_suite_name(), test.name(), reason);
  }
};

}  // namespace
}  // namespace titanium::test

#ifdef __SANITIZE_ADDRESS__
// A test asks for more memory than there is, which is then refused as it is without the sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

#ifdef __SANITIZE_THREAD__
// A test of the lifeline forks while other threads run and starts a thread in the child; by default the sanitizer ends
// such a child, for which its parent then waits.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
// What libraries without instrumentation make of code that is right:
// - oneDNN inside libtorch keeps primitives in a cache that threads share. The sanitizer sees an entry allocated by one
//   thread and compared by another, and not what makes it visible in between.
// - libgomp's threads meet at futexes. The sum after the parallel loop of the gradient norm, which a test runs on
//   several threads, looks as if it did not wait for them.
extern "C" const char* __tsan_default_suppressions() { return "race:dnnl::impl::\nrace:cpu_sum_of_squares\n"; }
#endif

int main(int argc, char** argv) {
  titanium::avoid_hidden_amx_tiles();
  // A test asks no cloud for the roles of the machine that it runs on.
  for (const char* name : {"AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK"}) ::setenv(name, "true", /*overwrite=*/0);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new titanium::test::AroundEachTest);
  return RUN_ALL_TESTS();
}
