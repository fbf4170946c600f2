// The tiles of Intel's AMX, with which oneDNN multiplies matrices of 16 bits.
#pragma once

#include <string_view>

namespace titanium {

// Whether this text of /proc/cpuinfo is that of a virtual machine that shows AMX but hides leaf 0x1d of CPUID, which
// says how large its tiles are.
bool hides_amx_tiles(std::string_view cpuinfo);

// On such a machine oneDNN multiplies with tiles that it has not configured, and an illegal instruction ends the
// process. Sets ONEDNN_MAX_CPU_ISA, unless it is set, so that oneDNN does without AMX. To be called before the first
// product and before other threads start.
void avoid_hidden_amx_tiles();

}  // namespace titanium
