#include "titanium/tensor/trace_scope.h"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdlib>

namespace titanium {
namespace {

// NVTX itself looks for its tool under this name.
bool a_tool_listens() {
  const char* tool = std::getenv("NVTX_INJECTION64_PATH");
  return tool != nullptr && *tool != '\0' && torch::profiler::impl::cudaStubs()->enabled();
}

bool nvtx_is_used() {
  static const bool used = a_tool_listens();
  return used;
}

}  // namespace

struct TraceScope::Range {
  Range() : record(at::RecordScope::USER_SCOPE) {}

  std::string name, part;
  const Range* outer = nullptr;
  bool nvtx = false;
  at::RecordFunction record;
};

std::atomic<bool> TraceScope::watched_ = nvtx_is_used();
thread_local const TraceScope::Range* TraceScope::innermost_ = nullptr;

void TraceScope::set_profiled(bool profiled) { watched_ = profiled || nvtx_is_used(); }

void TraceScope::open(std::string_view name, std::string_view detail, Kind kind) {
  range_ = new Range;
  range_->outer = innermost_;
  range_->part = kind == Kind::kPart ? std::string(name) : innermost_ != nullptr ? innermost_->part : "";
  range_->name = name;
  if (!detail.empty()) range_->name.append(" ").append(detail);
  range_->nvtx = nvtx_is_used();
  if (range_->nvtx) torch::profiler::impl::cudaStubs()->rangePush(range_->name.c_str());
  range_->record.before(std::string_view(range_->name));
  innermost_ = range_;
}

void TraceScope::close() {
  range_->record.end();
  if (range_->nvtx) torch::profiler::impl::cudaStubs()->rangePop();
  innermost_ = range_->outer;
  delete range_;
}

TraceScope::Place TraceScope::current() {
  return innermost_ == nullptr ? Place{} : Place{innermost_->part, innermost_->name};
}

}  // namespace titanium
