// Tensors and workspaces, cut into the blocks of a driver that pages, and the blocks that each op touches. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/step.h"
#include "vedette/model.h"

namespace vedette::sim {

inline constexpr std::uint8_t nowhere = 0xFF;  // no tier

struct Block {
  std::uint32_t tensor = 0;   // from the number of tensors on: a workspace
  Span<std::uint64_t> bytes;  // of the tensor
  std::uint8_t tier = nowhere;
  bool queued = false;   // in one of the driver's queues, which alone moves it then
  bool awaited = false;  // and the op at hand waits for it

  std::uint64_t size() const { return bytes.end - bytes.begin; }
};

// Each op's workspace is cut as a tensor of its own; workspaces follow the tensors, in order of their ops.
struct Blocks {
  using Run = Span<std::uint32_t>;

  std::vector<Block> all;
  std::vector<Run> of_tensor;
  std::vector<std::uint32_t> workspace;   // [op]: its number among the tensors; the largest number: none
  std::vector<std::vector<Run>> runs;     // [op]: the blocks that it touches, of read tensors first, a workspace last
  std::vector<std::uint32_t> born, dies;  // [tensor]: first and last op
};

Blocks cut_blocks(const Trace& trace, const Step& step, Bytes block);

}  // namespace vedette::sim
