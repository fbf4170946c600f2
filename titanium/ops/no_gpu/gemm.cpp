#include "titanium/ops/linear/gemm.h"

#include "titanium/base/error.h"

namespace titanium::ops {

void gemm(const GemmArgs&) { TI_ASSERT(false, "a CUDA tensor in a build without CUDA"); }
void use_gemm_choices(const GemmChoices&) {}
void start_gemm_trials() {}
GemmTrials finish_gemm_trials(const GemmDecision&) { return {}; }
std::string gemm_library_version() { return "none"; }

}  // namespace titanium::ops
