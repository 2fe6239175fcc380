// The two names of a tensor of GPU memory. To the session and the program it is the first of its chunks in the arena,
// or that chunk's address, where nothing lies. To the place executor it is a block.
//
// Thread rule: not thread safe; the executor's lock guards it. A name that was looked up not long ago is found in O(1)
// without a hash.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "moves/range_allocator.h"
#include "os/chunk_index.h"
#include "vedette/units.h"

namespace vedette::detail {

class Names {
 public:
  using BlockIndex = moves::BlockIndex;

  Names(const std::byte* arena, Bytes chunk) : arena_(arena), chunk_(chunk.value) {}

  void enter(ChunkIndex first, BlockIndex block);
  BlockIndex remove(ChunkIndex first);  // it is there

  // nullptr: no tensor begins there. Valid until it is removed.
  const BlockIndex* block(ChunkIndex first) const {
    const Recent& known = recent_[first.value % recent_.size()];
    return known.block != nullptr && known.first == first ? known.block : look_up(first);
  }
  const BlockIndex* block(ChunkRange chunks) const { return block(chunks.first()); }
  const BlockIndex* block(const void* name) const {
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(name) - arena_);
    return block(ChunkIndex{static_cast<std::uint32_t>(offset / chunk_)});
  }

  ChunkIndex first(BlockIndex block) const { return firsts_[block.value]; }
  const void* name(BlockIndex block) const { return arena_ + first(block).value * chunk_; }

 private:
  const BlockIndex* look_up(ChunkIndex first) const;
  struct Recent {
    ChunkIndex first;
    const BlockIndex* block = nullptr;  // in blocks_
  };

  const std::byte* const arena_;
  const std::uint64_t chunk_;
  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::unordered_map<std::uint32_t, BlockIndex> blocks_{&pool_};  // by first chunk
  mutable std::array<Recent, 1024> recent_{};                          // by first chunk, those looked up last
  std::vector<ChunkIndex> firsts_;                                     // of each block
};

}  // namespace vedette::detail
