#include "titanium/tensor/trace_scope.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <vector>

namespace titanium {
namespace {

using Kind = TraceScope::Kind;

// While one lives, somebody looks, and what begins is noted.
class Watch {
 public:
  Watch() {
    names().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& range) -> std::unique_ptr<at::ObserverContext> {
          names().push_back(range.name());
          return nullptr;
        }).scopes({at::RecordScope::USER_SCOPE}));
    TraceScope::set_profiled(true);
  }
  ~Watch() {
    TraceScope::set_profiled(false);
    at::removeCallback(handle_);
  }
  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }

 private:
  at::CallbackHandle handle_;
};

TEST(TraceScope, NothingHappensWhileNobodyLooks) {
  const TraceScope part("layers.3", {}, Kind::kPart), range("attention");
  EXPECT_FALSE(TraceScope::is_watched());
  EXPECT_EQ(TraceScope::current().part, "");
  EXPECT_EQ(TraceScope::current().range, "");
}

TEST(TraceScope, TheInnermostRangeAndPartAreKnown) {
  const Watch watch;
  {
    const TraceScope step("forward");
    EXPECT_EQ(TraceScope::current().part, "");
    {
      const TraceScope part("layers.3", "backward", Kind::kPart), range("all_gather", "fsdp");
      EXPECT_EQ(TraceScope::current().part, "layers.3");
      EXPECT_EQ(TraceScope::current().range, "all_gather fsdp");
    }
    EXPECT_EQ(TraceScope::current().part, "");
    EXPECT_EQ(TraceScope::current().range, "forward");
  }
  EXPECT_EQ(TraceScope::current().range, "");
  EXPECT_EQ(Watch::names(), (std::vector<std::string>{"forward", "layers.3 backward", "all_gather fsdp"}));
}

TEST(TraceScope, ARangeThatBeganUnwatchedStaysOut) {
  const TraceScope before("before");
  const Watch watch;
  const TraceScope inside("inside");
  EXPECT_EQ(Watch::names(), std::vector<std::string>{"inside"});
}

}  // namespace
}  // namespace titanium
