#include "titanium/remote/digest.h"

#include <fmt/format.h>

#include <bit>

namespace titanium::remote {
namespace {

constexpr size_t kBlock = 64;

constexpr std::array<uint32_t, 64> kSha256Constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// Whole blocks go to `block`, the rest waits.
template <typename Block>
void absorb(std::string_view bytes, std::string& pending, uint64_t& size, const Block& block) {
  size += bytes.size();
  if (!pending.empty()) {
    const size_t taken = std::min(bytes.size(), kBlock - pending.size());
    pending += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (pending.size() < kBlock) return;
    block(reinterpret_cast<const unsigned char*>(pending.data()));
    pending.clear();
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock))
    block(reinterpret_cast<const unsigned char*>(bytes.data()));
  pending = bytes;
}

// What both digests append to the message: a bit, zeros, and its length in bits.
std::string padding(uint64_t size) {
  std::string tail(1, '\x80');
  tail.append((kBlock * 2 - 9 - size % kBlock) % kBlock, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(size * 8 >> shift & 0xFF);
  return tail;
}

template <size_t count>
std::string bytes_of(const std::array<uint32_t, count>& words) {
  std::string bytes;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 0xFF);
  }
  return bytes;
}

}  // namespace

void Sha256::block(const unsigned char* bytes) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(bytes + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Constants[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> round = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += round[i];
}

void Sha256::update(std::string_view bytes) {
  absorb(bytes, pending_, size_, [this](const unsigned char* each) { block(each); });
}

std::string Sha256::finish() {
  update(padding(size_));
  return bytes_of(state_);
}

void Sha1::block(const unsigned char* bytes) {
  std::array<uint32_t, 80> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(bytes + 4 * i);
  for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state_;
  for (size_t i = 0; i < 80; ++i) {
    const uint32_t f = i < 20   ? ((b & c) | (~b & d))
                       : i < 40 ? b ^ c ^ d
                       : i < 60 ? ((b & c) | (b & d) | (c & d))
                                : b ^ c ^ d;
    const uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
    const uint32_t t = std::rotl(a, 5) + f + e + k + w[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = t;
  }
  const std::array<uint32_t, 5> round = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state_[i] += round[i];
}

void Sha1::update(std::string_view bytes) {
  absorb(bytes, pending_, size_, [this](const unsigned char* each) { block(each); });
}

std::string Sha1::finish() {
  update(padding(size_));
  return bytes_of(state_);
}

std::string sha256(std::string_view bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.finish();
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string block = key.size() > kBlock ? sha256(key) : std::string(key);
  block.resize(kBlock, '\0');
  std::string inner, outer;
  for (const char c : block) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5c);
  }
  return sha256(outer + sha256(inner.append(bytes)));
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace titanium::remote
