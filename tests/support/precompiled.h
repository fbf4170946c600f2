#pragma once

#include <gtest/gtest.h>

#include "titanium/base/precompiled.h"
