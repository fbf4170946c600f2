#include "titanium/tensor/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace titanium {
namespace {

c10::impl::VirtualGuardImpl guard_of(Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

Fence::Fence(Device device, bool timed) : device_(device) {
  if (device.is_cpu()) return;
  event_.emplace(device.type(), timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
}

void Fence::record() {
  if (event_) {
    event_->record(guard_of(device_).getStream(device_));
  } else {
    reached_ = std::chrono::steady_clock::now();
  }
  recorded_ = true;
}

void Fence::wait() {
  if (event_ && recorded_) event_->block(guard_of(device_).getStream(device_));
}

void Fence::synchronize() {
  if (event_ && recorded_) event_->synchronize();
}

double Fence::seconds_since(const Fence& earlier) const {
  if (event_) return earlier.event_->elapsedTime(*event_) / 1000;
  return std::chrono::duration<double>(reached_ - earlier.reached_).count();
}

SideStream::SideStream(Device device) {
  if (!device.is_cpu()) stream_ = guard_of(device).getNewStream(device, /*priority=*/-1);
}

}  // namespace titanium
