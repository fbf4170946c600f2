// SentencePiece's unigram model: of all ways to cut a text into pieces, that with the highest sum of scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/model/model.h"
#include "titanium/data/tokenizer/model/piece_trie.h"

namespace titanium::data {

struct UnigramPiece {
  std::string text;
  TokenId id;
  float score;
  bool user_defined = false;  // is always taken where it stands
};

// All that takes time to compute of a unigram model.
struct UnigramTables {
  Vocabulary vocabulary;  // all tokens, also those that no text becomes
  PieceTrie trie;         // values are indices of the arrays below
  std::vector<TokenId> ids;
  std::vector<float> scores;
  std::vector<uint8_t> user_defined;

  template <typename Archive>
  void exchange(Archive& archive) {
    vocabulary.exchange(archive);
    trie.exchange(archive);
    archive(ids, scores, user_defined);
  }
};

UnigramTables tables_of_pieces(Vocabulary vocabulary, const std::vector<UnigramPiece>& pieces);

struct UnigramOptions {
  TokenId unk_id = 0;
  bool byte_fallback = false;  // unknown characters become their bytes as <0x..> tokens
  bool double_sums = false;    // scores are summed as Hugging Face's tokenizers do, else as SentencePiece does: in
                               // floats. Ties fall differently.
};

class Unigram : public Model {
 public:
  // Throws Error when a byte has no token although unknown characters become bytes.
  Unigram(UnigramTables tables, const UnigramOptions& options);

  // Neighbouring unknown characters become one unknown token, or bytes. Throws Error for a word of more than 16 MiB.
  void encode(std::string_view word, std::vector<TokenId>& ids) const override;

  const Vocabulary& vocabulary() const override { return tables_.vocabulary; }

 private:
  template <typename Score>
  struct Step {  // the best way to reach a place of the text
    Score score = 0;
    int32_t piece = -1;  // index of a piece, -1: an unknown character
    int64_t from = -1;   // -1: not reached
  };
  template <typename Score>
  std::vector<Step<Score>> best_steps(std::string_view word) const;
  template <typename Score>
  void append_best(std::string_view word, std::vector<TokenId>& ids) const;

  UnigramTables tables_;
  UnigramOptions options_;
  float unk_score_ = 0;
  std::vector<TokenId> byte_ids_;
};

}  // namespace titanium::data
