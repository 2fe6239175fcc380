// Opening a session: arena, frames, slow tier, and what the machine can do, measured.
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/readable.h"
#include "os/probe.h"
#include "session/registry.h"
#include "session/state.h"

namespace vedette {
namespace {

constexpr std::uint64_t kib = 1024;

Error unsupported(std::string message) {
  return {.cause = Cause::unsupported, .message = std::move(message), .errno_value = 0};
}

Result<void> validate(const SessionOptions& options) {
  const std::uint64_t chunk = options.chunk.value;
  if (chunk < 16 * kib || (chunk & (chunk - 1)) != 0)
    return unsupported("chunk must be a power of two of at least 16 KiB");
  constexpr std::uint64_t fewest_frames = 8;  // one op reads two and writes one; slab, and moves in flight
  if (options.fast_memory.value < fewest_frames * chunk)
    return unsupported("fast_memory of " + readable_exactly(options.fast_memory) + " is too small: at least " +
                       std::to_string(fewest_frames) + " chunks, " + readable_exactly({fewest_frames * chunk}));
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * 4096;
  if (options.fast_memory.value > pages)
    return unsupported("fast_memory of " + readable_exactly(options.fast_memory) + " is more than the machine has, " +
                       readable_exactly({pages}));
  if (make_policy(options.policy, options.seed) == nullptr) {
    std::string known;
    for (const PolicyEntry& entry : policies()) known += (known.empty() ? "" : ", ") + std::string(entry.name);
    return unsupported("no policy '" + options.policy + "'; there are: " + known);
  }
  const auto trackers = tracker_names();
  if (std::find(trackers.begin(), trackers.end(), options.tracker) == trackers.end()) {
    std::string known;
    for (const std::string_view name : trackers) known.append(known.empty() ? "" : ", ").append(name);
    return unsupported(std::string("no page tracker '").append(options.tracker).append("'; there are: ").append(known));
  }
  return {};
}

// Frames are filled when the session opens, and the kernel kills who exceeds the limit of its memory cgroup: better
// refused, or said.
Result<void> fits_memory_cgroup(const SessionOptions& options) {
  const auto limit = memory_cgroup_limit();
  if (!limit || options.fast_memory + session_overhead <= *limit) return {};
  const std::string both = std::string("fast_memory of ")
                               .append(readable_exactly(options.fast_memory))
                               .append(" in a memory cgroup of ")
                               .append(readable_exactly(*limit));
  const Bytes most = *limit - std::min(*limit, session_overhead);
  if (options.fast_memory >= *limit) {
    return unsupported(std::string(both)
                           .append(" would be killed; at most ")
                           .append(readable_exactly(most))
                           .append(", less what the program itself needs, or raise the limit"));
  }
  if (options.on_message) {
    options.on_message(std::string(both)
                           .append(" leaves less than the ")
                           .append(readable(session_overhead))
                           .append(" that a session may need beside it: the kernel may kill the program"));
  }
  return {};
}

Result<std::unique_ptr<Store>> open_store(const SessionOptions& options) {
  constexpr std::uint32_t depth = 16;  // bandwidth is flat beyond 8 (bench/migrate); the rest covers bursts
  if (options.slow == "host") return open_host_store(options.chunk, depth);
  if (options.slow.starts_with("nvme:"))
    return open_nvme_store({.directory = options.slow.substr(5),
                            .slot_bytes = options.chunk,
                            .depth = depth,
                            .mechanism = IoMechanism::best,
                            .direct = true});
  return unsupported("slow tier '" + options.slow + "' is unknown; use nvme:DIRECTORY or host");
}

// Chunks of addresses: eight times the machine's memory, so that plans never run out of places, within what books cost.
std::uint32_t arena_chunks(const SessionOptions& options) {
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * 4096;
  constexpr std::uint64_t most_chunks = 131'072;  // 96 bytes of books each: 12 MiB
  return static_cast<std::uint32_t>(std::min(memory * 8 / options.chunk.value, most_chunks));
}

Machine describe(const detail::SessionState& state, const LinkSpeed& speed) {
  constexpr std::uint64_t plenty = std::uint64_t{1} << 60;
  Machine machine{
      .tiers = {{.name = "dram", .capacity = {state.frames * state.options.chunk.value}, .addressable = true},
                {.name = state.options.slow.substr(0, state.options.slow.find(':')),
                 .capacity = {plenty},
                 .addressable = false}},
      .links = {},
      .fault_time = {100'000},
      .granule = state.options.chunk,
      .can_recompute = false,
      .can_reorder = false};
  std::uint64_t in = speed.read, out = speed.write, in_alone = 0, out_alone = 0;
  if (speed.one_bus()) {  // both directions at once get less than the sum: plan with what each gets then
    const double scale =
        static_cast<double>(speed.mixed) / static_cast<double>(std::max<std::uint64_t>(1, speed.read + speed.write));
    in = static_cast<std::uint64_t>(static_cast<double>(speed.read) * scale);
    out = static_cast<std::uint64_t>(static_cast<double>(speed.write) * scale);
    in_alone = speed.read_alone();
    out_alone = speed.write_alone();
  }
  machine.links.push_back({.source = {1},
                           .target = {0},
                           .bytes_per_s = in,
                           .latency = {100'000},
                           .shared = std::nullopt,
                           .alone_bytes_per_s = in_alone});
  machine.links.push_back({.source = {0},
                           .target = {1},
                           .bytes_per_s = out,
                           .latency = {100'000},
                           .shared = std::nullopt,
                           .alone_bytes_per_s = out_alone});
  return machine;
}

}  // namespace

std::vector<std::string_view> tracker_names() {
  std::vector<std::string_view> names{"best"};
  for (const TrackerKind& kind : tracker_kinds()) names.push_back(kind.name);
  return names;
}

Result<std::unique_ptr<Session>> Session::open(SessionOptions options) try {
  if (detail::session_is_open())
    return unsupported(
        "a second session while one lives: end the first one (leave its guard's scope) before opening another");
  if (auto valid = validate(options); !valid) return valid.error();
  if (auto fits = fits_memory_cgroup(options); !fits) return fits.error();
  auto store = open_store(options);
  if (!store) return store.error();
  store = hashed(std::move(*store), options.checksums ? Hashing::verify : Hashing::remembered);
  auto state = std::make_unique<detail::SessionState>();
  state->chunks = arena_chunks(options);
  state->frames = static_cast<std::uint32_t>(options.fast_memory.value / options.chunk.value);
  state->options = std::move(options);
  const SessionOptions& o = state->options;
  auto arena = Mapping::reserve({state->chunks * o.chunk.value}, o.chunk);
  if (!arena) return arena.error();
  state->arena = std::move(*arena);
  state->heap = std::make_unique<Heap>(state->chunks, o.chunk);
  state->engine = std::make_unique<Engine>(
      EngineOptions{.chunks = state->chunks,
                    .frames = state->frames,
                    .chunk_bytes = o.chunk,
                    .store = std::move(*store),
                    .observer = o.observer,
                    .on_message = o.on_message,
                    .describe = [raw = state.get()](std::uint32_t chunk) { return raw->describe(chunk); }});
  Engine* const engine = state->engine.get();
  auto memory = open_best_memory({.arena = state->arena.data(),
                                  .chunks = state->chunks,
                                  .frames = state->frames,
                                  .chunk_bytes = o.chunk,
                                  .on_fault = [engine](const Fault& fault) { engine->fault(fault); }});
  if (!memory) return memory.error();
  if (o.profile != ProfileTicks::operands) {
    auto chosen = choose_tracker(o.tracker, **memory);
    if (!chosen && o.tracker != "best") return chosen.error();
    state->tracker = chosen ? chosen->kind : nullptr;
    state->passed_over = chosen ? chosen->passed_over : chosen.error().message;
  }
  const bool frames_change = state->tracker != nullptr && state->tracker->frames != FrameKind::fast;
  const LinkSpeed speed = engine->start(std::move(*memory), !frames_change);
  state->machine = describe(*state, speed);
  auto registered = detail::register_session(std::move(state));
  if (!registered) return registered.error();
  detail::SessionState* const opened = *registered;
  if (opened->options.observer != nullptr)
    opened->options.observer->opened(opened->machine, opened->options.policy, opened->options.fast_memory,
                                     opened->options.chunk);
  return std::unique_ptr<Session>(new Session(opened));
} catch (const std::system_error& error) {
  return Error{.cause = Cause::unavailable,
               .message = std::string("starting the threads of a session: ") + error.code().message() +
                          "; raise the limit of processes (ulimit -u)",
               .errno_value = error.code().value()};
}

}  // namespace vedette
