// Words that strangers cannot guess, and how to recognise one without knowing it.
#pragma once

#include <string>

namespace titanium::comm {

// 128 random bits in hexadecimal digits, from the kernel. Throws Error.
std::string make_secret();

// The same for the same secret, and no help to find it: its SHA-1 in hexadecimal digits. That collisions of SHA-1 can
// be made does not matter for a secret that is random.
std::string fingerprint_of(const std::string& secret);

}  // namespace titanium::comm
