// A cache of tokenizers that were read before: parsing and hashing 200,000 tokens takes up to a second, reading the
// tables back a tenth of that.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/files/tokenizer_parts.h"

namespace titanium::data {

// What `read` makes of `contents` (of the files of a tokenizer, of kind `kind`), from the cache when it is there: in
// $XDG_CACHE_HOME/titanium/tokenizers, else ~/.cache/titanium/tokenizers. A file of the cache is named by a hash of
// what it was made from, and is read only when its own checksum fits; one that is damaged is made again. A cache that
// cannot be written is done without. Small contents are not kept.
TokenizerParts cached_parts(std::string_view kind, const std::vector<std::string>& contents,
                            const std::function<TokenizerParts()>& read);

}  // namespace titanium::data
