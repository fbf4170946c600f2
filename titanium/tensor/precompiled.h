// Shared by all layers that see torch.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "titanium/base/precompiled.h"
