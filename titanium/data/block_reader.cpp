#include "titanium/data/block_reader.h"

namespace titanium::data {

std::shared_ptr<Block> BlockReader::begin_block(Content content, const Anchor& entrance) const {
  auto block = std::make_shared<Block>();
  block->begin = position_;
  block->entrance = entrance;
  block->content = content;
  return block;
}

void BlockReader::append(Block& block, std::string_view bytes, bool missing) {
  if (options_.ownership.owns(position_.record)) {
    block.entries.push_back({block.bytes.size(), bytes.size(), position_.line, missing});
    block.bytes.append(bytes);
    block.bytes.push_back('\0');
  }
  ++position_.record;
  ++position_.line;
  ++block.count;
}

bool BlockReader::is_full(const Block& block, int64_t bytes_read) const {
  constexpr int64_t kBlockRecords = 1024;
  return block.count >= kBlockRecords || bytes_read >= options_.block_bytes;
}

}  // namespace titanium::data
