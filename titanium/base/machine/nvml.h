// NVIDIA's management library, which comes with the GPU's driver: it is loaded when it is there.
#pragma once

namespace titanium {

// Calls the library's functions by their names and C signatures, because its header comes with a toolkit that a machine
// need not have. To be used by one thread at a time.
class Nvml {
 public:
  using Device = void*;

  // Loads and starts the library; whether that succeeded is ready().
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool ready() const { return ready_; }

  // True when the library has the function and it succeeds. `args` have exactly the types of its parameters.
  template <typename... Args>
  bool ask(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(find(name));
    return function != nullptr && function(args...) == 0;
  }

 private:
  void* find(const char* name) const;

  void* library_;
  bool ready_ = false;
};

struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};

}  // namespace titanium
