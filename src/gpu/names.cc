// Names that come, go and are looked up: see names.h.
#include "gpu/names.h"

#include "base/assert.h"

namespace vedette::detail {

void Names::enter(ChunkIndex first, BlockIndex block) {
  if (firsts_.size() <= block.value) firsts_.resize(block.value + 1);
  firsts_[block.value] = first;
  blocks_[first.value] = block;
}

Names::BlockIndex Names::remove(ChunkIndex first) {
  const auto found = blocks_.find(first.value);
  VEDETTE_ASSERT(found != blocks_.end());
  const BlockIndex block = found->second;
  if (Recent& known = recent_[first.value % recent_.size()]; known.block == &found->second) known = {};
  blocks_.erase(found);
  return block;
}

const Names::BlockIndex* Names::look_up(ChunkIndex first) const {
  const auto found = blocks_.find(first.value);
  if (found == blocks_.end()) return nullptr;
  recent_[first.value % recent_.size()] = {.first = first, .block = &found->second};
  return &found->second;
}

}  // namespace vedette::detail
