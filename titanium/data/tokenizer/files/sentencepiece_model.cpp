// SentencePiece's model file is a protobuf message. We read the few fields that we need ourselves: the format is
// stable, and a library would be a dependency of the program.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "titanium/base/text/base64.h"
#include "titanium/data/tokenizer/files/tokenizer_parts.h"
#include "titanium/data/tokenizer/sentencepiece_normalizer.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr const char* kDamaged = "the SentencePiece model is damaged at byte {}. Fetch the file again.";

struct Field {
  uint64_t number;
  uint64_t value = 0;           // of a varint or a fixed 32-bit number
  std::string_view bytes = {};  // of a string or a message
};

// Reads the fields of one message.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field = {.number = key >> 3};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5: {
        field.bytes = take(4);
        uint32_t bits = 0;
        std::memcpy(&bits, field.bytes.data(), sizeof bits);
        field.value = bits;
        break;
      }
      default:
        damaged();
    }
    return true;
  }

 private:
  [[noreturn]] void damaged() const { throw Error(fmt::format(kDamaged, at_)); }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) damaged();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

enum class PieceType : uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct File {
  std::vector<Piece> pieces;
  std::map<uint64_t, Field> trainer;
  std::map<uint64_t, Field> normalizer;
};

// Numbers of fields in TrainerSpec and NormalizerSpec.
constexpr uint64_t kModelType = 3, kSpaceIsSuffix = 24, kByteFallback = 35, kBosPiece = 46, kEosPiece = 47;
constexpr uint64_t kCharsmap = 2, kDummyPrefix = 3, kExtraSpaces = 4, kEscapeSpaces = 5;
constexpr uint64_t kUnigramModel = 1, kBpeModel = 2;

Piece parse_piece(std::string_view bytes) {
  Piece piece;
  Message message(bytes);
  for (Field field{}; message.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
    if (field.number == 3) piece.type = static_cast<PieceType>(field.value);
  }
  TI_CHECK(!replace_invalid_utf8(piece.text), "a piece of the SentencePiece model is not UTF-8. Fetch the file again.");
  TI_CHECK(std::isfinite(piece.score),
           "piece \"{}\" of the SentencePiece model has the score {}. Fetch the file again.", printable(piece.text, 40),
           piece.score);
  return piece;
}

std::map<uint64_t, Field> parse_fields(std::string_view bytes) {
  std::map<uint64_t, Field> fields;
  Message message(bytes);
  for (Field field{}; message.next(field);) fields[field.number] = field;
  return fields;
}

File parse_file(std::string_view content) {
  File file;
  Message message(content);
  for (Field field{}; message.next(field);) {
    if (field.number == 1) file.pieces.push_back(parse_piece(field.bytes));
    if (field.number == 2) file.trainer = parse_fields(field.bytes);
    if (field.number == 3) file.normalizer = parse_fields(field.bytes);
  }
  TI_CHECK(!file.pieces.empty(), "the SentencePiece model has no pieces. Fetch the file again.");
  TI_CHECK(file.pieces.size() <= 1u << 24, "the SentencePiece model has {} pieces, expected at most {}.",
           file.pieces.size(), 1u << 24);
  return file;
}

bool flag_of(const std::map<uint64_t, Field>& fields, uint64_t number, bool otherwise) {
  const auto found = fields.find(number);
  return found == fields.end() ? otherwise : found->second.value != 0;
}

std::string text_of(const std::map<uint64_t, Field>& fields, uint64_t number, std::string_view otherwise) {
  const auto found = fields.find(number);
  return std::string(found == fields.end() ? otherwise : found->second.bytes);
}

// Dense ranks: pieces of the same score have the same.
BpeTables bpe_tables(const File& file, Vocabulary vocabulary) {
  std::vector<float> scores;
  for (const Piece& piece : file.pieces) scores.push_back(piece.score);
  std::ranges::sort(scores, std::greater{});
  scores.erase(std::ranges::unique(scores).begin(), scores.end());
  std::vector<RankedPiece> ranked;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    TI_CHECK(piece.type != PieceType::kUnused,
             "piece {} of the SentencePiece model is marked as unused, which is not "
             "supported for BPE.",
             i);
    if (piece.type != PieceType::kNormal) continue;
    const auto rank = std::ranges::lower_bound(scores, piece.score, std::greater{}) - scores.begin();
    ranked.push_back({piece.text, static_cast<TokenId>(i), static_cast<uint32_t>(rank)});
  }
  return {.vocabulary = std::move(vocabulary), .merges = MergeTable(merges_of_pieces(ranked)), .words = {}};
}

UnigramTables unigram_tables(const File& file, Vocabulary vocabulary) {
  std::vector<UnigramPiece> pieces;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined) continue;
    pieces.push_back({.text = piece.text,
                      .id = static_cast<TokenId>(i),
                      .score = piece.score,
                      .user_defined = piece.type == PieceType::kUserDefined});
  }
  return tables_of_pieces(std::move(vocabulary), pieces);
}

Json decoder_json(bool dummy_prefix) {
  Json steps = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (dummy_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// Everything but the model.
Json json_of(const File& file, bool is_bpe) {
  const bool dummy_prefix = flag_of(file.normalizer, kDummyPrefix, true);
  Json added = Json::array(), user_defined = Json::array();
  const std::string bos = text_of(file.trainer, kBosPiece, "<s>"), eos = text_of(file.trainer, kEosPiece, "</s>");
  Json json = {{"decoder", decoder_json(dummy_prefix)}};
  for (const Piece& piece : file.pieces) {
    if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) {
      added.push_back({{"content", piece.text}, {"special", true}, {"normalized", false}, {"in_text", false}});
      if (piece.text == bos) json["bos_token"] = bos;
      if (piece.text == eos) json["eos_token"] = eos;
    } else if (piece.type == PieceType::kUserDefined) {
      user_defined.push_back(piece.text);
      if (is_bpe) added.push_back({{"content", piece.text}, {"normalized", true}, {"literal", true}});
    }
  }
  json["added_tokens"] = std::move(added);
  json["normalizer"] = {{"type", "SentencePiece"},
                        {"charsmap", to_base64(text_of(file.normalizer, kCharsmap, ""))},
                        {"add_dummy_prefix", dummy_prefix},
                        {"remove_extra_whitespaces", flag_of(file.normalizer, kExtraSpaces, true)},
                        {"escape_whitespaces", flag_of(file.normalizer, kEscapeSpaces, true)},
                        {"treat_whitespace_as_suffix", flag_of(file.trainer, kSpaceIsSuffix, false)},
                        {"protected", std::move(user_defined)}};
  return json;
}

}  // namespace

TokenizerParts parts_of_sentencepiece(std::string_view content) {
  const File file = parse_file(content);
  const auto model_type = file.trainer.find(kModelType);
  const uint64_t type = model_type == file.trainer.end() ? kUnigramModel : model_type->second.value;
  TI_CHECK(type == kUnigramModel || type == kBpeModel,
           "the SentencePiece model has type {}, expected 1 (unigram) or 2 (BPE).", type);
  const bool byte_fallback = flag_of(file.trainer, kByteFallback, false);
  TokenList tokens;
  std::optional<size_t> unk;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    tokens.emplace_back(file.pieces[i].text, static_cast<TokenId>(i));
    if (file.pieces[i].type == PieceType::kUnknown) unk = i;
  }
  TI_CHECK(unk, "the SentencePiece model has no piece for unknown characters. Fetch the file again.");
  Json json = json_of(file, type == kBpeModel);
  if (type == kUnigramModel) {
    json["model"] = {{"type", "Unigram"}, {"unk_id", *unk}, {"byte_fallback", byte_fallback}};
    return {std::move(json), unigram_tables(file, Vocabulary(tokens))};
  }
  json["model"] = {
      {"type", "BPE"}, {"unk_token", file.pieces[*unk].text}, {"fuse_unk", true}, {"byte_fallback", byte_fallback}};
  return {std::move(json), bpe_tables(file, Vocabulary(tokens))};
}

}  // namespace titanium::data
