#pragma once

#include <gtest/gtest.h>

#include "titanium/tensor/precompiled.h"
