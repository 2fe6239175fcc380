// Blocks that are away and are used in their slots of pinned memory, over the link: for the place executor's own files.
//
// What always holds: a slot that an op uses is near, and its block does not come before the op has ended. Where the op
// writes there, no copy of the slot and no transfer to the disk runs beside it.
//
// Thread rule: as PlaceExecutor's.
#pragma once
#include <cstdint>
#include <span>

#include "gpu/place_executor.h"

namespace vedette {

struct PlaceExecutor::InSlots {
  // As PlaceExecutor::begin_op(). end() for each block that has one of these uses, when the op's work is queued.
  Result<bool> begin_op(std::span<const BlockIndex> blocks, std::span<const Few> few, Results results, Bytes result);
  // The same where other ops use some of the blocks in their slots.
  Result<bool> begin_beside(std::span<const BlockIndex> blocks, Results results, Bytes result);
  // False: it is in place, or on its way there, or its slot cannot be used now. Then it is an operand as others are.
  bool begin(const Few& use);
  void end(BlockIndex index);
  void leaves_first(BlockIndex index);  // one in place, of all that may

  PlaceExecutor& of;
  std::uint32_t stream = 0;
};

}  // namespace vedette
