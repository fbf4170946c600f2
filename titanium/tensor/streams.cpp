#include "titanium/tensor/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace titanium {
namespace {

c10::impl::VirtualGuardImpl guard_of(Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

Fence::Fence(Device device) : device_(device) {
  if (!device.is_cpu()) event_.emplace(device.type());
}

void Fence::record() {
  if (event_) event_->record(guard_of(device_).getStream(device_));
  recorded_ = true;
}

void Fence::wait() {
  if (event_ && recorded_) event_->block(guard_of(device_).getStream(device_));
}

void Fence::synchronize() {
  if (event_ && recorded_) event_->synchronize();
}

SideStream::SideStream(Device device) {
  if (!device.is_cpu()) stream_ = guard_of(device).getNewStream(device, /*priority=*/-1);
}

}  // namespace titanium
