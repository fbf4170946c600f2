// What Muon's orthogonalisation of the blocks of Llama 3 costs: all matrices once, on one device, as one owner would do
// it. Prints seconds of the iteration and of the whole update, and the speed of the products.
//
//   bench_muon [1B | 8B ...]      without a GPU: a small model in fp32 on the CPU
#include "titanium/optim/muon.h"

#include <ATen/ops/randn.h>

#include <chrono>
#include <cstdio>

#include "titanium/tensor/gpu_backend.h"

namespace titanium::optim {
namespace {

struct Model {
  const char* name;
  int64_t layers, dim, key_value_dim, hidden;
};
constexpr Model kModels[] = {{"debug", 2, 256, 256, 768}, {"1B", 16, 2048, 512, 8192}, {"8B", 32, 4096, 1024, 14336}};

double seconds_of(const std::function<void()>& work, bool cuda) {
  constexpr int kRounds = 3;
  work();
  if (cuda) synchronize_gpu();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) work();
  if (cuda) synchronize_gpu();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRounds;
}

void measure(const Model& model, Device device) {
  const bool cuda = device.is_cuda();
  const Dtype dtype = cuda ? at::kBFloat16 : at::kFloat;
  const int64_t d = model.dim, kv = model.key_value_dim, f = model.hidden;
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> parameters;
  double operations = 0;
  for (const Shape& shape : {Shape{d, d}, {kv, d}, {kv, d}, {d, d}, {f, d}, {d, f}, {f, d}}) {
    owned.push_back(std::make_unique<Parameter>("w", shape));
    owned.back()->materialize(dtype, device);
    owned.back()->value.detach().normal_(0, 0.02);
    parameters.push_back(owned.back().get());
    operations += 10 * newton_schulz_work(shape[0], shape[1]);  // five iterations of multiplications and additions
  }
  Muon muon({{parameters, {.newton_schulz = {.dtype = dtype}}}});
  muon.materialize();
  for (Parameter* p : parameters) p->grad = at::randn(p->global_shape, p->value.options().requires_grad(false));
  const double iteration = seconds_of(
      [&] {
        for (const Parameter* p : parameters) orthogonalize(p->grad, {.dtype = dtype});
      },
      cuda);
  const double update = seconds_of([&] { muon.step(1e-3); }, cuda);
  const auto layers = static_cast<double>(model.layers);
  std::printf("%s: iteration %.4f s (%.1f TFLOP/s), update %.4f s\n", model.name, iteration * layers,
              operations / iteration / 1e12, update * layers);
}

int run(const std::vector<std::string>& names) {
  const bool cuda = gpu_device_count() > 0;
  for (const Model& model : kModels) {
    const bool named = std::ranges::count(names, model.name) > 0;
    if (named || (names.empty() && cuda != (std::string_view(model.name) == "debug"))) {
      measure(model, cuda ? Device(at::kCUDA, 0) : Device(at::kCPU));
    }
  }
  return 0;
}

}  // namespace
}  // namespace titanium::optim

int main(int argc, char** argv) { return titanium::optim::run({argv + 1, argv + argc}); }
