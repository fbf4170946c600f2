// The checksum of zip archives, at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace titanium::checkpoint {

// CRC-32 (IEEE 802.3, as in zip) of bytes that follow others whose checksum is `previous`; 0 before the first. On
// x86_64 with carry-less multiplication several times as fast as zlib, which does the work elsewhere.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace titanium::checkpoint
