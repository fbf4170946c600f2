// NVML as a machine with two GPUs has it, of which the second one does not tell its power.
#include <cstdint>

namespace {

constexpr int kFine = 0, kNotSupported = 3;

uintptr_t number_of(void* device) { return reinterpret_cast<uintptr_t>(device) - 1; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return kFine; }
int nvmlShutdown() { return kFine; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kFine;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return kFine;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* shares) {
  shares[0] = 97;
  shares[1] = number_of(device) == 0 ? 41 : 5;
  return kFine;
}

int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* bytes) {
  bytes[0] = 1000;
  bytes[1] = 750;
  bytes[2] = number_of(device) == 0 ? 250 : 500;
  return kFine;
}

int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 63;
  return kFine;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 525'000;
  return number_of(device) == 0 ? kFine : kNotSupported;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return kFine;
}
}
