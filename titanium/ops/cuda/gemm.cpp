#include "titanium/ops/linear/gemm.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <bit>
#include <mutex>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/tensor/trace_scope.h"

namespace titanium::ops {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS recommends for Hopper and later
constexpr int kMostCandidates = 12;
constexpr int64_t kBestAlignment = 256;

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

template <typename T, cublasStatus_t (*kDestroy)(T)>
struct Destroyer {
  void operator()(T handle) const { kDestroy(handle); }
};
using Description =
    std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                   Destroyer<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

// How a matrix lies in memory. The library counts columns first: to it, a matrix of contiguous rows is its transpose.
struct Storage {
  Dtype dtype = at::kBFloat16;
  bool columns = false;  // they are contiguous, else rows
  int64_t stride = 0;    // from one to the next
  auto operator<=>(const Storage&) const = default;
};

Storage storage_of(const Tensor& x) {
  const bool columns = x.stride(1) != 1;
  // The stride of a single row or column says nothing.
  const int64_t length = x.size(columns ? 0 : 1), stride = x.stride(columns ? 1 : 0);
  return {x.scalar_type(), columns, std::max(length, stride)};
}

enum class Scaling { kNone, kByTensor, kByLine };

Scaling scaling_of(const GemmArgs& args) {
  if (!args.a_scale.defined()) return Scaling::kNone;
  return args.a_scale.numel() == 1 && args.b_scale.numel() == 1 ? Scaling::kByTensor : Scaling::kByLine;
}

// All that the choice of an algorithm depends on.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Storage out, a, b, added;
  bool adds = false;
  Scaling scaling = Scaling::kNone;
  bool fast_accumulation = false, with_bias = false;
  int64_t alignment = kBestAlignment;
  auto operator<=>(const Product&) const = default;
};

int64_t alignment_of(const Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  return std::min<int64_t>(kBestAlignment, int64_t{1} << std::min(std::countr_zero(address), 30));
}

Product product_of(const GemmArgs& args) {
  Product product{.m = args.out_MN.size(0), .n = args.out_MN.size(1), .k = args.a_MK.size(1)};
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

std::string describe(const Storage& storage) {
  return fmt::format("{}:{}:{}", c10::toString(storage.dtype), storage.columns ? "columns" : "rows", storage.stride);
}

std::string describe(const Product& product) {
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
Layout layout_of(const Storage& storage, int64_t rows, int64_t columns) {
  const int64_t fast = storage.columns ? rows : columns, slow = storage.columns ? columns : rows;
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(storage.dtype), fast, slow, storage.stride), "describing a matrix");
  return Layout(layout);
}

Description make_description(const Product& product) {
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  Description description(raw);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(raw, name, &value, sizeof(value)), "describing a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, product.b.columns ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, product.a.columns ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (product.scaling != Scaling::kNone) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{product.fast_accumulation});
  if (product.with_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(product.out.dtype));
  }
  if (product.scaling == Scaling::kByLine) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  }
  return description;
}

Preference make_preference(const Product& product) {
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

struct Event {
  Event() { C10_CUDA_CHECK(cudaEventCreate(&event)); }
  ~Event() { static_cast<void>(cudaEventDestroy(event)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

struct Sample {
  size_t candidate = 0;
  Event begin, end;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Products of one stream run one after the other and share theirs, which is kept: a small product takes less time than
// an allocation.
const Tensor& workspace_of(cudaStream_t stream) {
  static auto& by_stream =
      *new std::map<cudaStream_t, Tensor>;  // outlives the CUDA driver's own end; guarded by Plans::mutex
  Tensor& workspace = by_stream[stream];
  if (!workspace.defined()) workspace = at::empty({kWorkspaceBytes}, at::TensorOptions(at::kByte).device(at::kCUDA));
  return workspace;
}

// A product with its algorithm, or with those that are being tried.
class Plan {
 public:
  Plan(const Product& product, const GemmArgs& args, const GemmChoices& choices)
      : name_(describe(product)), adds_(product.adds) {
    description_ = make_description(product);
    set_pointers(args);
    a_ = layout_of(product.b, product.k, product.n);
    b_ = layout_of(product.a, product.m, product.k);
    out_ = layout_of(product.out, product.m, product.n);
    added_ = layout_of(product.added, product.m, product.n);
    find_candidates(product);
    if (const auto choice = choices.find(name_); choice != choices.end()) choose(choice->second);
  }

  void choose(const std::string& text) {
    const std::optional<cublasLtMatmulAlgo_t> algorithm = from_hexadecimal(text);
    cublasLtMatmulHeuristicResult_t result{};
    if (algorithm &&
        cublasLtMatmulAlgoCheck(library(), description_.get(), a_.get(), b_.get(), added_.get(), out_.get(),
                                &*algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= static_cast<size_t>(kWorkspaceBytes)) {
      chosen_ = *algorithm;
    } else {
      log_warning("The tuned algorithm of {} does not fit this library; its own choice is used.", name_);
    }
  }

  void run(const GemmArgs& args) { launch(args, chosen_); }

  void run_next_candidate(const GemmArgs& args) {
    const size_t count = candidates_.size(), turn = samples_.size();
    samples_.push_back(std::make_unique<Sample>());
    Sample& sample = *samples_.back();
    sample.candidate = (turn + turn / count) % count;  // so that calls at the same place of a step differ
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    C10_CUDA_CHECK(cudaEventRecord(sample.begin.event, stream));
    launch(args, candidates_[sample.candidate]);
    C10_CUDA_CHECK(cudaEventRecord(sample.end.event, stream));
  }

  // Chooses the fastest of those that were tried; the device must have finished.
  std::optional<GemmTrial> decide() {
    if (samples_.empty()) return std::nullopt;
    std::vector<std::vector<double>> times(candidates_.size());
    // The GPU gets warm meanwhile, if there are that many.
    const size_t first = samples_.size() < 4 * candidates_.size() ? 0 : samples_.size() / 4;
    for (size_t i = first; i < samples_.size(); ++i) {
      float milliseconds = 0;
      C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, samples_[i]->begin.event, samples_[i]->end.event));
      times[samples_[i]->candidate].push_back(milliseconds * 1e3);
    }
    GemmTrial trial{.product = name_,
                    .candidates = static_cast<int64_t>(candidates_.size()),
                    .calls = static_cast<int64_t>(samples_.size())};
    for (size_t i = 0; i < times.size(); ++i) {
      if (times[i].empty()) continue;
      const double us = median(times[i]);
      if (i == 0) trial.first_us = us;
      if (trial.best_us != 0 && us >= trial.best_us) continue;
      trial.best_us = us;
      chosen_ = candidates_[i];
    }
    samples_.clear();
    return trial;
  }

  const std::string& name() const { return name_; }
  const cublasLtMatmulAlgo_t& chosen() const { return chosen_; }

 private:
  void find_candidates(const Product& product) {
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
  void set_pointers(const GemmArgs& args) {
    const auto set = [&](cublasLtMatmulDescAttributes_t name, const Tensor& array) {
      const void* pointer = array.const_data_ptr();
      check(
          cublasLtMatmulDescSetAttribute(description_.get(), name, static_cast<const void*>(&pointer), sizeof(pointer)),
          "setting a pointer");
    };
    if (args.bias_N.defined()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias_N);
    if (!args.a_scale.defined()) return;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scale);
  }

  void launch(const GemmArgs& args, const cublasLtMatmulAlgo_t& algorithm) {
    set_pointers(args);
    const float one = 1, beta = adds_ ? 1.0F : 0.0F;
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    const void* added = adds_ ? args.added_MN.const_data_ptr() : args.out_MN.const_data_ptr();
    check(cublasLtMatmul(library(), description_.get(), &one, args.b_KN.const_data_ptr(), a_.get(),
                         args.a_MK.const_data_ptr(), b_.get(), &beta, added, added_.get(), args.out_MN.data_ptr(),
                         out_.get(), &algorithm, workspace_of(stream).data_ptr(), kWorkspaceBytes, stream),
          "multiplying");
  }

  std::string name_;
  bool adds_;
  Description description_;
  Layout a_, b_, out_, added_;  // the library's a is b here, and the other way round
  std::vector<cublasLtMatmulAlgo_t> candidates_;
  cublasLtMatmulAlgo_t chosen_{};
  std::vector<std::unique_ptr<Sample>> samples_;
};

// Forward and backward run on different host threads.
struct Plans {
  std::mutex mutex;
  std::map<Product, Plan> by_product;
  GemmChoices choices;
  bool trying = false;
};

Plans& plans() {
  static Plans& all = *new Plans;  // outlives the CUDA driver's own end
  return all;
}

}  // namespace

void gemm(const GemmArgs& args) {
  const TraceScope scope("gemm");
  Plans& all = plans();
  const std::scoped_lock lock(all.mutex);
  const Product product = product_of(args);
  auto plan = all.by_product.find(product);
  if (plan == all.by_product.end()) {
    plan = all.by_product.try_emplace(product, product, args, all.choices).first;
  }
  all.trying ? plan->second.run_next_candidate(args) : plan->second.run(args);
}

void use_gemm_choices(const GemmChoices& choices) {
  Plans& all = plans();
  const std::scoped_lock lock(all.mutex);
  all.choices = choices;
  for (auto& [product, plan] : all.by_product) {
    if (const auto choice = choices.find(plan.name()); choice != choices.end()) plan.choose(choice->second);
  }
}

void start_gemm_trials() {
  const std::scoped_lock lock(plans().mutex);
  plans().trying = true;
}

GemmTrials finish_gemm_trials() {
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  const std::scoped_lock lock(plans().mutex);
  plans().trying = false;
  GemmTrials found;
  for (auto& [product, plan] : plans().by_product) {
    const std::optional<GemmTrial> trial = plan.decide();
    if (!trial) continue;
    found.trials.push_back(*trial);
    found.choices[plan.name()] = to_hexadecimal(plan.chosen());
  }
  return found;
}

std::string gemm_library_version() { return std::to_string(cublasLtGetVersion()); }

}  // namespace titanium::ops
