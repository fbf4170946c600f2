// Bytes of a file with random damage: the beginning, where headers are, as often as all the rest.
#pragma once

#include <algorithm>
#include <random>
#include <string>

namespace titanium::test {

inline std::string damaged(std::string bytes, std::mt19937_64& random) {
  for (uint64_t edits = 1 + random() % 4; edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random() % (random() % 2 == 0 ? std::min<size_t>(bytes.size(), 80) : bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0x7f);
        break;
      case 2:
        bytes.erase(at, 1 + random() % 20);
        break;
      default:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 30));
    }
  }
  return bytes;
}

}  // namespace titanium::test
