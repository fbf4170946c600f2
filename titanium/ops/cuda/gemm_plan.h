// A matrix product with the algorithms that cuBLASLt offers for it.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>
#include <vector>

#include "titanium/ops/linear/gemm.h"

namespace titanium::ops {

constexpr int64_t kBestAlignment = 256;

// How a matrix lies in memory. The library counts columns first: to it, a matrix of contiguous rows is its transpose.
struct MatrixStorage {
  Dtype dtype = at::kBFloat16;
  bool columns = false;  // they are contiguous, else rows
  int64_t stride = 0;    // from one to the next
  auto operator<=>(const MatrixStorage&) const = default;
};

enum class GemmScaling { kNone, kByTensor, kByLine };

// All that the choice of an algorithm depends on.
struct GemmProduct {
  int64_t m = 0, n = 0, k = 0;
  MatrixStorage out, a, b, added;
  bool adds = false;
  GemmScaling scaling = GemmScaling::kNone;
  bool fast_accumulation = false, with_bias = false;
  int64_t alignment = kBestAlignment;  // in bytes
  auto operator<=>(const GemmProduct&) const = default;
};

GemmProduct product_of(const GemmArgs& args);

template <typename T, cublasStatus_t (*kDestroy)(T)>
struct Destroyer {
  void operator()(T handle) const { kDestroy(handle); }
};
template <typename Opaque, cublasStatus_t (*kDestroy)(Opaque*)>
using Handle = std::unique_ptr<Opaque, Destroyer<Opaque*, kDestroy>>;

// A product with its candidates, the algorithms that the library names, best guess first, and the chosen one. One
// thread at a time uses the plans of a process: they share workspaces.
class GemmPlan {
 public:
  GemmPlan(const GemmProduct& product, const GemmArgs& args, const GemmChoices& choices);

  const std::string& name() const { return name_; }
  size_t candidates() const { return candidates_.size(); }

  void choose(size_t candidate) { chosen_ = candidates_[candidate]; }
  // As GemmChoices has it. What does not fit is left with a warning.
  void choose(const std::string& text);
  std::string choice() const;

  // Queue the product on the current stream.
  void run(const GemmArgs& args) const { launch(args, chosen_); }
  void run(const GemmArgs& args, size_t candidate) const { launch(args, candidates_[candidate]); }

 private:
  void find_candidates(const GemmProduct& product);
  void set_pointers(const GemmArgs& args) const;
  void launch(const GemmArgs& args, const cublasLtMatmulAlgo_t& algorithm) const;

  using Layout = Handle<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;

  std::string name_;
  bool adds_;
  Handle<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy> description_;
  Layout a_, b_, out_, added_;  // the library's a is b here, and the other way round
  std::vector<cublasLtMatmulAlgo_t> candidates_;
  cublasLtMatmulAlgo_t chosen_{};
};

}  // namespace titanium::ops
