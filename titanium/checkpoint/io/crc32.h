// The checksum of zip archives, at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace titanium::checkpoint {

// CRC-32 (IEEE 802.3, as in zip) of bytes that follow others whose checksum is `previous`; 0 before the first. On
// x86_64 with carry-less multiplication several times as fast as zlib, which does the work elsewhere.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

// The checksum of bytes followed by `size` others, out of the checksums of both.
uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t size);

}  // namespace titanium::checkpoint
