#include "titanium/comm/rendezvous/secret.h"

#include <c10/util/hash.h>
#include <sys/random.h>

#include <array>
#include <cstdint>

#include "titanium/base/error.h"

namespace titanium::comm {

std::string make_secret() {
  std::array<uint64_t, 2> bits{};
  TI_CHECK(::getrandom(bits.data(), sizeof bits, 0) == sizeof bits, "the kernel gives no random bits.");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

std::string fingerprint_of(const std::string& secret) { return c10::sha1(secret).str(); }

}  // namespace titanium::comm
