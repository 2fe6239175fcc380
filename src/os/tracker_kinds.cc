#include "os/tracker_kinds.h"

#include <algorithm>
#include <iterator>

namespace vedette {
namespace {

constexpr TrackerKind kinds[] = {
    {"zap", FrameKind::trackable, open_zap_tracker},
    {"missing", FrameKind::unregistered, open_missing_tracker},
    {"mprotect", FrameKind::fast, [] { return open_mprotect_tracker(); }},
};

Result<void> works(const TrackerKind& kind, ChunkMemory& memory, bool sees_system_calls) {
  if (Trackable* const frames = memory.trackable(); frames == nullptr && kind.frames != FrameKind::fast) {
    return Error{.cause = Cause::unavailable, .message = "frames here have one kind"};
  } else if (auto allowed = frames != nullptr ? frames->allows(kind.frames) : Result<void>(); !allowed) {
    return allowed;
  }
  auto tracker = kind.open();
  if (!tracker) return tracker.error();
  if ((*tracker)->sees_system_calls() || !sees_system_calls) return {};
  return Error{.cause = Cause::unavailable,
               .message = std::string((*tracker)->mechanism())
                              .append(": system calls are not seen, userfaultfd is for user mode only")};
}

const TrackerKind* find(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const TrackerKind& kind) { return kind.name == name; });
  return found == std::end(kinds) ? nullptr : found;
}

Result<ChosenTracker> choose_best(ChunkMemory& memory) {
  std::string passed_over;
  for (const std::string_view name : {"zap", "missing", "mprotect"}) {
    const auto works_here = works(*find(name), memory, name == "missing");
    if (works_here) return ChosenTracker{find(name), passed_over};
    passed_over.append(passed_over.empty() ? "" : "; ").append(works_here.error().message);
  }
  return Error{.cause = Cause::unavailable, .message = std::move(passed_over)};
}

}  // namespace

std::span<const TrackerKind> tracker_kinds() { return kinds; }

Result<ChosenTracker> choose_tracker(std::string_view name, ChunkMemory& memory) {
  if (name == "best") return choose_best(memory);
  if (const TrackerKind* const kind = find(name)) {
    const auto works_here = works(*kind, memory, false);
    if (works_here) return ChosenTracker{kind, {}};
    return Error{.cause = Cause::unavailable,
                 .message = std::string("page tracker '")
                                .append(name)
                                .append("' does not work here: ")
                                .append(works_here.error().message),
                 .errno_value = works_here.error().errno_value};
  }
  std::string known = "best";
  for (const TrackerKind& kind : kinds) known.append(", ").append(kind.name);
  return Error{.cause = Cause::unsupported,
               .message = std::string("no page tracker '").append(name).append("'; there are: ").append(known)};
}

}  // namespace vedette
