// The page trackers by name, the kind of frames that each of them can watch, and the choice among them for the memory
// at hand.
//
// Thread rule: any thread.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "os/chunk_memory.h"
#include "os/page_tracker.h"
#include "vedette/result.h"

namespace vedette {

struct TrackerKind {
  std::string_view name;  // "zap"
  FrameKind frames;       // fast: any
  Result<std::unique_ptr<PageTracker>> (*open)();
};

std::span<const TrackerKind> tracker_kinds();

struct ChosenTracker {
  const TrackerKind* kind = nullptr;
  std::string passed_over;  // why not a better one, each mechanism with its reason; empty: this is the best
};

// `name` is one of tracker_kinds(), or "best": zap; else missing pages by messages, where they see system calls; else
// mprotect. Opens the tracker to see it behave, and asks the memory for its frames. Errors: unsupported (no such name),
// unavailable (not on this machine, or not with this memory): one sentence.
Result<ChosenTracker> choose_tracker(std::string_view name, ChunkMemory& memory);

}  // namespace vedette
