// How many tokens a data set has, without reading all of it.
#pragma once

#include <optional>

#include "titanium/data/corpus.h"

namespace titanium::data {

// Note [Estimate of tokens]
// Up to 8 MiB are counted. Of more, 64 KiB of text are tokenised at each of 32 places that lie as far apart in the
// stored bytes as they can, and the tokens of a stored byte there are taken for those of all. Of columns 64 KiB are
// read as they are stored. Where files cannot be entered in the middle (compressed, archives, Arrow streams), whole
// files of up to 4 MiB are such places; of larger ones of compressed lines the first 8 MiB are decoded, and the places
// lie as far apart in these as they can. A place weighs the same whatever is read there, and a file that is read whole
// as much as the places that fall into it. What the places differ from each other tells how wrong that can be: `error`
// is twice the standard error of the quotient, which about 19 of 20 data sets keep to. It knows nothing of what lies
// between the places, such as one file unlike all others, nor of what comes after the beginnings of files.
struct TokenEstimate {
  double tokens = 0;
  double error = 0;              // either way; 0: counted
  bool from_beginnings = false;  // of compressed files, by which nothing is known of what comes after them
};

// Nothing where too few places can be read, or nothing at some. Bad records count as none. `encoder` may be empty where
// records have tokens. Throws Error as RecordSource does.
std::optional<TokenEstimate> estimate_tokens(const std::vector<SourceFile>& files, const ReadOptions& options,
                                             const Encoder& encoder);

}  // namespace titanium::data
