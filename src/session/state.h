// What a session remembers: its arena and engine, the tensors that live, the log of the running step, and a bucket
// (profile, layout, plan) for each sequence of ops it has met.
//
// A step is recognised op by op: while each op equals the bucket's, the bucket's plan runs; at the first difference
// another bucket with the same beginning takes over, or the rest of the step runs on demand and becomes a new bucket.
//
// Locks: `mutex` guards everything here but the engine, which has its own; the engine is never called with `mutex` held
// where it may wait. The op thread alone changes `bucket`, `cursor` and the log's ops.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mapping.h"
#include "engine/engine.h"
#include "pack/op_sections.h"
#include "pack/units.h"
#include "session/heap.h"
#include "session/page_profile.h"
#include "vedette/policy.h"
#include "vedette/session.h"

namespace vedette::detail {

struct Live {  // a tensor that lives now
  Bytes bytes;
  std::string name;
  TensorKind kind = TensorKind::activation;
  bool lasting = false;         // from the heap of persistent ones
  bool planned = false;         // at an address of its bucket's zone
  bool small = false;           // of the slab, but on pages of its own since its birth was profiled
  std::uint64_t logged_in = 0;  // the step whose log has it, at `index`
  std::uint32_t index = 0;
  std::vector<std::int64_t> shape;  // known of what a step used that had no plan, as is the site
  Site site;
};

struct PlannedAddress {
  std::uint64_t offset = 0;
  bool usable = false;  // false: this one is allocated as if there were no plan
};

struct OpPlan {  // what the executor does at one op, or one section of it
  std::vector<Engine::PlannedFetch> fetches;
  std::vector<ChunkRange> evictions;
  std::vector<Engine::NextUse> next_uses;  // ticks relative to the step's first
};

struct TouchedPart {  // by an op, in one step
  std::uint32_t op = 0;
  ChunkRange chunks;
};

// Of the steps by a bucket's plan the first remembers when ops allocate, the second sees what large ops touch in
// between: then they are planned in sections.
enum class Watching : std::uint8_t { times, touches, done };

constexpr std::uint32_t no_log_tensor = ~0u;

struct WatchedOp {  // while a step is Watching::touches
  std::uint32_t op = 0;
  std::vector<ChunkRange> operands;
  std::vector<std::uint32_t> tensors;  // of the log, one for each operand
  std::vector<WatchedSection> sections;
};

struct Bucket {
  std::uint64_t id = 0;
  StepLog log;
  std::vector<std::uint64_t> prefixes;  // of each op: the hash of all ops so far
  std::vector<std::uint32_t> first;  // of each op: its first section, which the plan counts as ops; one more at the end
  std::vector<std::vector<WatchedSection>> sections;  // of each op; of none or several
  Watching watching = Watching::times;
  std::vector<char> worth_watching;  // ops
  std::vector<std::uint32_t>
      sections_that_failed;  // ops that touched, in the latest step, what their section did not say
  std::vector<std::vector<Nanoseconds>>
      section_times;  // of each op, from birth to birth and to its end, without what it waited
  Units units;        // of sections
  Plan plan;
  std::unique_ptr<Policy> policy;
  std::vector<OpPlan> ops;  // of sections
  std::map<std::uint64_t, std::vector<PlannedAddress>>
      addresses;  // by bytes: of the n-th allocation of that size in the step
  std::uint64_t zone = 0, zone_bytes = 0;
  std::uint64_t last_run = 0;           // step
  std::uint64_t runs = 0;               // whole steps by its plan
  std::vector<Nanoseconds> least_time;  // of each section, over the steps so far
  bool times_are_guesses = false;       // least_time: of sections that have not run as such yet
  Trace program;
  std::optional<Trace> program_in_sections;
  std::uint32_t unplanned = 0;                // chunks of fast memory left to what is touched in parts
  std::deque<std::vector<TouchedPart>> rows;  // of its latest steps, oldest first (rows.cc)
  std::vector<std::uint32_t> program_logged;  // of each of its tensors: its number in `log`
};

constexpr std::size_t most_buckets =
    10;  // Sentinel buckets inputs in about ten (section on dynamic graphs, as recalled)

struct SessionState {
  SessionOptions options;
  Mapping arena;
  std::uint32_t chunks = 0, frames = 0;
  std::unique_ptr<Engine> engine;  // nullptr: ended
  Machine machine;

  mutable std::mutex mutex;
  std::unique_ptr<Heap> heap;
  std::map<std::uint64_t, Live> tensors;                   // by offset; not the small ones
  std::unordered_map<std::uint64_t, std::uint32_t> small;  // offset -> bytes
  std::uint32_t slots_reserved = 0;
  std::set<std::uint32_t> unborn_slab;  // chunks of the slab that are not in fast memory yet
  std::uint64_t live_bytes = 0, peak_bytes = 0;
  std::atomic<bool> open = true;  // its Session object lives

  // The running step.
  std::uint64_t step = 0;  // counts from 1; 0: no step has begun
  bool in_step = false;
  std::atomic<int> op_depth = 0;  // the op thread's; allocations of others look
  StepLog log;
  std::uint32_t events = 0;
  std::vector<std::uint64_t> log_hashes;
  std::map<std::uint64_t, std::uint32_t> allocations;  // by bytes: how many in this step so far
  std::uint64_t running_hash = 0;
  Ticks step_base = 0;
  Nanoseconds last_end, section_began;  // of the running op, or of its section
  std::optional<LayerIndex> layer;
  Phase layer_phase = Phase::forward;
  std::vector<std::pair<std::optional<LayerIndex>, Phase>> layer_stack;
  std::map<std::pair<std::string, Phase>, LayerIndex> layer_index;
  std::vector<ChunkRange> operands;
  std::vector<std::uint32_t> operand_tensors;  // of the log, of those operands that are whole tensors
  std::thread::id op_thread;
  std::uint32_t op_births = 0;                      // by the op thread in the running op
  std::vector<ChunkRange> born_in_op;               // and live
  std::vector<WatchedSection>* sections = nullptr;  // of the running op, if it has some
  bool watches = false;                             // the running op
  std::uint32_t section = 0;
  std::uint32_t planned_op = 0;              // the running section, as the plan counts
  std::uint64_t early_before = 0;            // Engine::early_touches() when the running op began, if it has sections
  std::vector<WatchedOp> watched_ops;        // in this step
  std::set<std::uint32_t> touched_in_parts;  // chunks of tensors that no plan moves, in this step
  std::vector<TouchedPart> step_rows;        // the same with their ops, in order
  bool advised_on_rows = false;
  std::vector<Nanoseconds> op_times, op_stalls;  // of sections, where ops have some
  Counters at_step_begin;
  Nanoseconds step_began;

  std::vector<std::unique_ptr<Bucket>> buckets;
  Bucket* bucket = nullptr;  // whose plan runs; nullptr: on demand
  Bucket* last_bucket = nullptr;
  std::uint64_t next_bucket = 1;
  bool profiled_once = false;
  std::unique_ptr<PageProfile> pages;                                       // while a step is profiled
  const TrackerKind* tracker = nullptr;                                     // nullptr: no page can be seen
  std::string passed_over;                                                  // why not a better one
  std::unordered_map<std::uint64_t, std::vector<Nanoseconds>> usual_times;  // of warm-up's last ops, by hash, in order

  // addresses and tensors (session.cc)
  std::byte* base() const noexcept { return arena.data(); }
  ChunkRange chunks_of(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  std::uint32_t log_tensor(std::uint64_t offset, Live& live);
  Result<std::byte*> allocate(const AllocateOptions& allocation);
  void expect_writes(std::uint64_t offset, std::uint64_t bytes) noexcept;
  void release(std::byte* memory) noexcept;
  void end_if_empty() noexcept;  // after its Session: frames, threads and slots are given back with the last tensor
  Result<void> reserve_slots(std::uint32_t end);
  Result<void> bear_slab(std::uint32_t chunk);
  void give_back(std::uint64_t offset, const Live& live);  // its address, to the heap it came from
  std::optional<std::uint64_t> planned_address(std::uint64_t bytes);
  std::map<std::uint64_t, Live>::iterator holding(const void* memory);
  std::string describe(std::uint32_t chunk) const;  // its addresses, and its tensors where the books can be read
  void message(std::string_view sentence) const {
    if (options.on_message) options.on_message(sentence);
  }

  // steps and ops (steps.cc)
  void begin_step();
  void end_step() noexcept;
  void begin_op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                std::span<const Part> parts);
  void end_op() noexcept;
  void set_layer(std::string_view name, Phase phase);
  void add_operands(std::span<const void* const> addresses, std::vector<std::uint32_t>& logged, std::uint64_t& hash);
  void add_parts(std::span<const Part> parts, LoggedOp& op, std::uint64_t& hash);
  void follow(std::uint64_t hash);  // keeps, switches or leaves the bucket
  StepLog finished_log();
  void report_step_end();
  void report_places(const Bucket& bucket) const;
  std::string_view phase() const noexcept;
  Site site() const;  // where the op thread is, in a step that may be profiled

  // sections of ops (sections.cc)
  void choose_worth_watching(Bucket& bucket) const;
  void watch_section(std::uint32_t birth, std::uint64_t bytes,
                     std::uint32_t after_event);  // of the running op, that begins with that birth (0: with the op)
  void end_watching();                            // the section
  bool learn_sections(Bucket& bucket);            // from the step that ended
  void finish_watching(Bucket& bucket);
  void form_sections(Bucket& bucket, StepLog log);
  Engine::Planned plan_of_op(std::uint32_t index);
  void before_birth(std::uint64_t bytes, std::unique_lock<std::mutex>& lock);
  bool section_begins(std::uint64_t bytes) const;  // with this birth
  Nanoseconds count_time_until(Nanoseconds now);
  void next_section(bool runs);                   // false: the op ended without it
  std::vector<ChunkRange> section_needs() const;  // chunks of the running section
  Engine::Planned planned_now() const;

  // what steps touched in parts (rows.cc)
  void touch_part(std::uint32_t op, ChunkRange chunks);
  void remember_rows(Bucket& bucket);  // of the step that ended
  Rows rows_of(const Bucket& bucket) const;
  void advise_on_rows();  // once, after a step that touched some

  // profiling (profiling.cc)
  void remember_times();
  void start_profiling();
  void finish_profiling();

  // plans (buckets.cc)
  void learn(StepLog log);
  void lay_out(Bucket& bucket);
  void make_plan(Bucket& bucket);
  void tabulate(Bucket& bucket);
  void measure(Bucket& bucket, Nanoseconds time, Nanoseconds stall);
  void retire_buckets();
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept;

}  // namespace vedette::detail
