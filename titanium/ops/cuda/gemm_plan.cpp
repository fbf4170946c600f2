#include "titanium/ops/cuda/gemm_plan.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <bit>
#include <map>

#include "titanium/base/error.h"
#include "titanium/base/log.h"

namespace titanium::ops {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS recommends for Hopper and later
constexpr int kMostCandidates = 12;

using Description = Handle<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

void check(cublasStatus_t status, const char* what) {
  TI_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt failed while {}: {}", what, cublasLtGetStatusString(status));
}

cublasLtHandle_t library() {
  static const cublasLtHandle_t kHandle = [] {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "starting");
    return handle;
  }();
  return kHandle;
}

MatrixStorage storage_of(const Tensor& x) {
  const bool columns = x.stride(1) != 1;
  // The stride of a single row or column says nothing.
  const int64_t length = x.size(columns ? 0 : 1), stride = x.stride(columns ? 1 : 0);
  return {x.scalar_type(), columns, std::max(length, stride)};
}

GemmScaling scaling_of(const GemmArgs& args) {
  if (!args.a_scale.defined()) return GemmScaling::kNone;
  return args.a_scale.numel() == 1 && args.b_scale.numel() == 1 ? GemmScaling::kByTensor : GemmScaling::kByLine;
}

int64_t alignment_of(const Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  return std::min<int64_t>(kBestAlignment, int64_t{1} << std::min(std::countr_zero(address), 30));
}

std::string describe(const MatrixStorage& storage) {
  return fmt::format("{}:{}:{}", c10::toString(storage.dtype), storage.columns ? "columns" : "rows", storage.stride);
}

std::string describe(const GemmProduct& product) {
  constexpr const char* kScalings[] = {"", " scaled", " scaled by line"};
  return fmt::format("{}x{}x{} a={} b={} out={}{}{}{}{} align={}", product.m, product.n, product.k, describe(product.a),
                     describe(product.b), describe(product.out),
                     product.adds ? fmt::format(" added={}", describe(product.added)) : "",
                     kScalings[static_cast<int>(product.scaling)], product.fast_accumulation ? " fast" : "",
                     product.with_bias ? " bias" : "", product.alignment);
}

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kFloat:
      return CUDA_R_32F;
    case at::kFloat8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case at::kFloat8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      TI_ASSERT(false, "no product of {}", c10::toString(dtype));
      return CUDA_R_32F;
  }
}

// The library computes out^T = b^T a^T: what is a matrix of rows here is one of columns there.
Layout layout_of(const MatrixStorage& storage, int64_t rows, int64_t columns) {
  const int64_t fast = storage.columns ? rows : columns, slow = storage.columns ? columns : rows;
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(storage.dtype), fast, slow, storage.stride), "describing a matrix");
  return Layout(layout);
}

Description make_description(const GemmProduct& product) {
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  Description description(raw);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(raw, name, &value, sizeof(value)), "describing a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, product.b.columns ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, product.a.columns ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (product.scaling != GemmScaling::kNone) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{product.fast_accumulation});
  if (product.with_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(product.out.dtype));
  }
  if (product.scaling == GemmScaling::kByLine) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  }
  return description;
}

Preference make_preference(const GemmProduct& product) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "asking for algorithms");
  Preference preference(raw);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(raw, name, &value, sizeof(value)), "asking for algorithms");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  // Parts of a sum are added in fp32, not in the dtype of the result.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(name, static_cast<uint32_t>(product.alignment));
  }
  return preference;
}

std::string to_hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_hexadecimal(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  if (text.size() != 16 * std::size(algorithm.data)) return std::nullopt;
  for (size_t i = 0; i < std::size(algorithm.data); ++i) {
    algorithm.data[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  }
  return algorithm;
}

// Products of one stream run one after the other and share theirs, which is kept: a small product takes less time than
// an allocation.
const Tensor& workspace_of(cudaStream_t stream) {
  static auto& by_stream =
      *new std::map<cudaStream_t, Tensor>;  // outlives the CUDA driver's own end; guarded by the mutex of the plans
  Tensor& workspace = by_stream[stream];
  if (!workspace.defined()) workspace = at::empty({kWorkspaceBytes}, at::TensorOptions(at::kByte).device(at::kCUDA));
  return workspace;
}

}  // namespace

GemmProduct product_of(const GemmArgs& args) {
  GemmProduct product{.m = args.out_MN.size(0), .n = args.out_MN.size(1), .k = args.a_MK.size(1)};
  product.out = storage_of(args.out_MN);
  product.a = storage_of(args.a_MK);
  product.b = storage_of(args.b_KN);
  product.adds = args.added_MN.defined();
  product.scaling = scaling_of(args);
  product.fast_accumulation = args.fast_accumulation;
  product.with_bias = args.bias_N.defined();
  product.added = product.adds ? storage_of(args.added_MN) : product.out;
  product.alignment = std::min({alignment_of(args.out_MN), alignment_of(args.a_MK), alignment_of(args.b_KN),
                                product.adds ? alignment_of(args.added_MN) : kBestAlignment});
  return product;
}

GemmPlan::GemmPlan(const GemmProduct& product, const GemmArgs& args, const GemmChoices& choices)
    : name_(describe(product)), adds_(product.adds), description_(make_description(product)) {
  set_pointers(args);
  a_ = layout_of(product.b, product.k, product.n);
  b_ = layout_of(product.a, product.m, product.k);
  out_ = layout_of(product.out, product.m, product.n);
  added_ = layout_of(product.added, product.m, product.n);
  find_candidates(product);
  if (const auto choice = choices.find(name_); choice != choices.end()) choose(choice->second);
}

void GemmPlan::choose(const std::string& text) {
  const std::optional<cublasLtMatmulAlgo_t> algorithm = from_hexadecimal(text);
  cublasLtMatmulHeuristicResult_t result{};
  if (algorithm &&
      cublasLtMatmulAlgoCheck(library(), description_.get(), a_.get(), b_.get(), added_.get(), out_.get(), &*algorithm,
                              &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= static_cast<size_t>(kWorkspaceBytes)) {
    chosen_ = *algorithm;
  } else {
    log_warning("The tuned algorithm of {} does not fit this library; its own choice is used.", name_);
  }
}

std::string GemmPlan::choice() const { return to_hexadecimal(chosen_); }

void GemmPlan::find_candidates(const GemmProduct& product) {
  cublasLtMatmulHeuristicResult_t found[kMostCandidates];
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library(), description_.get(), a_.get(), b_.get(), added_.get(), out_.get(),
                                     make_preference(product).get(), kMostCandidates, found, &count);
  TI_CHECK(status == CUBLAS_STATUS_SUCCESS && count > 0, "cuBLASLt has no algorithm for {}: {}", name_,
           cublasLtGetStatusString(status));
  for (int i = 0; i < count; ++i) candidates_.push_back(found[i].algo);
  chosen_ = candidates_[0];
}

// Those of scales and of the bias.
void GemmPlan::set_pointers(const GemmArgs& args) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const Tensor& array) {
    const void* pointer = array.const_data_ptr();
    check(cublasLtMatmulDescSetAttribute(description_.get(), name, static_cast<const void*>(&pointer), sizeof(pointer)),
          "setting a pointer");
  };
  if (args.bias_N.defined()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias_N);
  if (!args.a_scale.defined()) return;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scale);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scale);
}

void GemmPlan::launch(const GemmArgs& args, const cublasLtMatmulAlgo_t& algorithm) const {
  set_pointers(args);
  const float one = 1, beta = adds_ ? 1.0F : 0.0F;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const void* added = adds_ ? args.added_MN.const_data_ptr() : args.out_MN.const_data_ptr();
  check(cublasLtMatmul(library(), description_.get(), &one, args.b_KN.const_data_ptr(), a_.get(),
                       args.a_MK.const_data_ptr(), b_.get(), &beta, added, added_.get(), args.out_MN.data_ptr(),
                       out_.get(), &algorithm, workspace_of(stream).data_ptr(), kWorkspaceBytes, stream),
        "multiplying");
}

}  // namespace titanium::ops
