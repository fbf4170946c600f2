// Token strings and their ids, both ways, in flat arrays that can be written to a file and read back at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titanium::data {

using TokenId = int32_t;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

using TokenList = std::vector<std::pair<std::string, TokenId>>;

// Immutable and thread-safe.
class Vocabulary {
 public:
  Vocabulary() = default;
  // Where a token or an id comes twice, the later entry counts.
  explicit Vocabulary(const TokenList& tokens);

  std::optional<TokenId> id(std::string_view token) const;
  std::optional<std::string_view> token(TokenId id) const;
  size_t size() const { return ids_.size(); }

  // Entry i in the order of ids.
  std::string_view token_at(size_t i) const { return {bytes_.data() + begins_[i], begins_[i + 1] - begins_[i]}; }
  TokenId id_at(size_t i) const { return ids_[i]; }

  // Hands all arrays to `archive`, which reads or writes them.
  template <typename Archive>
  void exchange(Archive& archive) {
    archive(bytes_, begins_, ids_, slots_);
  }

 private:
  struct Slot {
    uint32_t tag = 0;    // upper half of the hash
    uint32_t entry = 0;  // index + 1; 0: free
  };

  std::vector<char> bytes_;       // all tokens, one after the other
  std::vector<uint32_t> begins_;  // where each begins, and the end of the last
  std::vector<TokenId> ids_;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
};

}  // namespace titanium::data
