// Opening a session: arena, frames, slow tier, and the machine, measured.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/architecture.h"
#include "base/gpu_name.h"
#include "base/readable.h"
#include "base/uncancelled.h"
#include "engine/engine.h"
#include "os/devices.h"
#include "os/folder_turn.h"
#include "os/probe.h"
#include "session/core.h"
#include "session/fast_memory.h"
#include "session/forks.h"
#include "session/open_gpu.h"
#include "session/registry.h"
#include "session/share.h"
#include "session/stack.h"

namespace vedette {
namespace {

constexpr std::uint64_t kib = 1024;

Error unsupported(std::string message) { return {.cause = Cause::unsupported, .message = std::move(message)}; }

Result<void> known_policy(const SessionOptions& options) {
  if (make_policy(options.policy, options.seed) != nullptr) return {};
  std::string known;
  for (const PolicyEntry& entry : policies()) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  return unsupported("no policy '" + options.policy + "'; there are: " + known);
}

std::vector<std::string_view> names_of_host_trackers() {
  std::vector<std::string_view> names{"best"};
  for (const TrackerKind& kind : tracker_kinds()) names.push_back(kind.name);
  return names;
}

Result<void> validate(const SessionOptions& options) {
  const std::uint64_t chunk = options.chunk.value;
  const Bytes least{std::max<std::uint64_t>(16 * kib, page_size)};
  if (chunk < least.value || (chunk & (chunk - 1)) != 0)
    return unsupported("chunk must be a power of two of at least " + std::to_string(least.value / kib) + " KiB");
  if (auto valid = detail::valid_fast_memory(options); !valid) return valid;
  if (options.ranks == 0) return unsupported("ranks is 0; it counts this process, so it is at least 1");
  if (options.table_memory.value > 0)
    return unsupported("table_memory is a part of a GPU's memory (fast = \"gpu:0\"); leave it out");
  if (options.tracker == detail::managed_tracker)
    return unsupported("page tracker 'cupti' does not work here: it sees a GPU's memory (fast = \"gpu:0\"); use best");
  const std::vector<std::string_view> trackers = names_of_host_trackers();
  if (std::find(trackers.begin(), trackers.end(), options.tracker) == trackers.end()) {
    std::string known;
    for (const std::string_view name : trackers) known.append(known.empty() ? "" : ", ").append(name);
    return unsupported(std::string("no page tracker '").append(options.tracker).append("'; there are: ").append(known));
  }
  return {};
}

// Tensors of closed sessions count against the budget. They keep at most half of it, where they can leave: no op of
// this session says when it needs them, so each comes by a fault. Returns the most that they would keep.
Bytes share_with_closed_sessions(SessionOptions& options) {
  const Bytes whole = options.fast_memory, half = {whole.value / 2};
  const auto [kept, at_most] = detail::shrink_closed_sessions(half);
  if (kept.value == 0) return {};
  options.fast_memory =
      std::max({whole - std::min(whole, kept), half, Bytes{detail::fewest_frames * options.chunk.value}});
  if (kept.value * 16 < whole.value || !options.on_message) return at_most;
  options.on_message(std::string("tensors of earlier sessions keep ")
                         .append(readable(kept))
                         .append(" of fast memory, so this one has ")
                         .append(readable(options.fast_memory))
                         .append(" of ")
                         .append(readable(whole))
                         .append("; one session around all epochs plans for them as well"));
  return at_most;
}

// Chunks of addresses: eight times the machine's memory, so that plans never run out of places, within the cost of
// books.
std::uint32_t arena_chunks(const SessionOptions& options) {
  const std::uint64_t memory = detail::memory_of_the_machine().value;
  constexpr std::uint64_t most_chunks = 131'072;  // 96 bytes of books for each that is used
  return static_cast<std::uint32_t>(std::min(memory * 8 / options.chunk.value, most_chunks));
}

}  // namespace

std::vector<std::string_view> tracker_names() {
  std::vector<std::string_view> names = names_of_host_trackers();
  names.push_back(detail::managed_tracker);
  return names;
}

namespace {

// A file there takes memory, as much as leaves fast memory: the budget would bound nothing.
void tell_of_disk_in_memory(const SessionOptions& options, const std::string& disk) {
  struct statfs info {};
  const bool in_memory = !disk.empty() && ::statfs(disk.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
  if (!in_memory || !options.on_message) return;
  options.on_message("slow tier '" + options.slow +
                     "' lies in a tmpfs, which is memory itself: what leaves fast memory " +
                     "takes as much there; name a directory of a disk, as in nvme:/data");
}

// The node of fast memory; nullopt: any.
Result<std::optional<NodeIndex>> node_of(const SessionOptions& options) {
  constexpr std::string_view scheme = "numa:";
  if (!options.fast.starts_with(scheme)) return std::optional<NodeIndex>();
  const auto node = node_named(std::string_view(options.fast).substr(scheme.size()), find_numa_nodes());
  if (!node) return unsupported("fast memory '" + options.fast + "': " + node.error().message);
  return std::optional(*node);
}

// Engine, memory and tracker over the store of a stack.
Result<detail::SessionCore::Opened> open_memory(detail::SessionCore& core, detail::Stack stack, Bytes kept_by_closed) {
  const SessionOptions& o = core.options();
  const auto chunks = static_cast<std::uint32_t>(core.arena().bytes().value / o.chunk.value);
  const auto frames = static_cast<std::uint32_t>(o.fast_memory.value / o.chunk.value);
  const auto most_frames =
      static_cast<std::uint32_t>(std::max(o.fast_memory, detail::memory_of_the_machine()).value / o.chunk.value);
  const auto node = node_of(o);
  if (!node) return node.error();
  auto engine = std::make_unique<Engine>(
      EngineOptions{.chunks = chunks,
                    .frames = frames,
                    .most_frames = most_frames,
                    .chunk_bytes = o.chunk,
                    .store = hashed(std::move(stack.store), o.checksums ? Hashing::verify : Hashing::remembered),
                    .observer = o.observer,
                    .read_in_place = stack.read_in_place,
                    .write_in_place = stack.write_in_place,
                    .on_message = [&core](std::string_view sentence) { core.post(sentence); },
                    .describe = [&core](ChunkIndex chunk) { return core.memory().describe(chunk); },
                    .on_dropped_wanted = [&core](ChunkIndex chunk) { core.steps().drops().note(chunk); },
                    .kept_by_closed = kept_by_closed});
  auto memory = open_best_memory({.arena = core.arena().base(),
                                  .chunks = chunks,
                                  .frames = most_frames,
                                  .made = std::min(frames, detail::requests_in_flight),  // the measured ones
                                  .budget = frames,
                                  .chunk_bytes = o.chunk,
                                  .node = *node,
                                  .on_fault = [e = engine.get()](const Fault& fault) { e->fault(fault); }});
  if (!memory) return memory.error();
  detail::SessionCore::Opened opened;
  if (o.profile != ProfileTicks::operands) {
    auto chosen = choose_tracker(o.tracker, **memory);
    if (!chosen && o.tracker != "best") return chosen.error();
    opened.tracking.tracker = chosen ? chosen->kind : nullptr;
    opened.tracking.passed_over = chosen ? chosen->passed_over : chosen.error().message;
  }
  const bool frames_change = opened.tracking.tracker != nullptr && opened.tracking.tracker->frames != FrameKind::fast;
  std::vector<LinkHabits> habits;
  {
    std::optional<FolderTurn> turn;
    if (o.ranks > 1 && !stack.disk.empty()) turn.emplace(stack.disk);
    habits = engine->start(std::move(*memory), !frames_change);
    if (turn) habits.back().speed = habits.back().speed.part(o.ranks);
    if (const std::uint64_t most = stack.writes_bytes_per_s, without = habits.back().speed.write;
        most > 0 && most < without) {
      habits.back().speed = habits.back().speed.with_writes_at_most(most);
      if (o.observer != nullptr) o.observer->writes_bounded({most}, {without});
    }
  }
  for (Tier& tier : stack.slow) tier.addressable = tier.addressable && engine->traits().lends;
  opened.executor = std::move(engine);
  opened.machine = detail::machine_of({frames * o.chunk.value}, o.chunk, stack.slow, habits);
  opened.machine.interference_percent = o.interference_percent;
  opened.machine.fault_time = o.fault_time.value_or(default_fault_time);
  opened.frames = frames;
  return opened;
}

}  // namespace

namespace {

Result<std::unique_ptr<detail::SessionCore>> open_core(SessionOptions options) {
  options.fast = gpu_name(options.fast);
  if (!is_host_memory(options.fast)) return detail::open_gpu_core(std::move(options));
  if (auto valid = validate(options); !valid) return valid.error();
  if (auto fits = detail::fits_memory_cgroup(options); !fits) return fits.error();
  const Bytes kept_by_closed = share_with_closed_sessions(options);
  auto stack = detail::open_stack(options);
  if (!stack) return stack.error();
  tell_of_disk_in_memory(options, stack->disk);
  auto arena = Mapping::reserve({std::uint64_t{arena_chunks(options)} * options.chunk.value}, options.chunk);
  if (!arena) return arena.error();
  auto core = std::make_unique<detail::SessionCore>(std::move(options), std::move(*arena));
  auto memory = open_memory(*core, std::move(*stack), kept_by_closed);
  if (!memory) return memory.error();
  core->start(std::move(*memory));
  return core;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(SessionOptions options) try {
  const Uncancelled in_here;
  if (detail::session_is_open())
    return unsupported(
        "a second session while one lives: end the first one (leave its guard's scope) before opening another");
  if (auto known = known_policy(options); !known) return known.error();
  if (!options.enabled)
    return unsupported(
        "a session that is not enabled has no memory to give; make a vedette::Guard with enabled = false");
  if (!options.record.empty())
    return unsupported("a session does not record by itself; open a vedette::Recorder and make it the observer");
  if (auto watched = detail::watch_forks(); !watched) return watched.error();
  auto lease = detail::lease_for(options);
  if (!lease) return lease.error();
  auto core = open_core(std::move(options));
  if (!core) return core.error();
  const Machine machine = (*core)->machine();
  auto registered = detail::register_session(std::move(*core));
  if (!registered) return registered.error();
  const SessionOptions& o = (*registered)->options();
  if (o.pressure) (*registered)->memory().follow_pressure();
  if (o.observer != nullptr) {
    o.observer->opened(machine, o.policy, o.fast_memory, o.chunk);
    o.observer->moves_by((*registered)->mechanism());
  }
  return std::unique_ptr<Session>(new Session(*registered, std::move(lease).value()));
} catch (const std::system_error& error) {
  return Error{.cause = Cause::unavailable,
               .message = std::string("starting the threads of a session: ") + error.code().message() +
                          "; raise the limit of processes (ulimit -u)",
               .errno_value = error.code().value()};
}

}  // namespace vedette
