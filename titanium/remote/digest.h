// SHA-256, SHA-1 and HMAC-SHA-256, for signatures and for checks of downloads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace titanium::remote {

class Sha256 {
 public:
  void update(std::string_view bytes);
  std::string finish();  // 32 bytes

 private:
  void block(const unsigned char* bytes);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string pending_;
  uint64_t size_ = 0;
};

class Sha1 {
 public:
  void update(std::string_view bytes);
  std::string finish();  // 20 bytes

 private:
  void block(const unsigned char* bytes);
  std::array<uint32_t, 5> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::string pending_;
  uint64_t size_ = 0;
};

std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);

// Two lower-case digits for each byte.
std::string to_hex(std::string_view bytes);

}  // namespace titanium::remote
