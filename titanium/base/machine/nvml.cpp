#include "titanium/base/machine/nvml.h"

#include <dlfcn.h>

namespace titanium {

Nvml::Nvml(const char* library) : library_(::dlopen(library, RTLD_NOW)) { ready_ = ask("nvmlInit_v2"); }

Nvml::~Nvml() {
  if (ready_) ask("nvmlShutdown");
  if (library_ != nullptr) ::dlclose(library_);
}

void* Nvml::find(const char* name) const { return library_ == nullptr ? nullptr : ::dlsym(library_, name); }

}  // namespace titanium
