// Drops tensors of a step that repeats, and recomputes them. What always holds: everything dropped can be recomputed
// from what lives. So before an op changes a source of it, or a source dies, it is made; sources that can be made
// themselves may die or be dropped.
//
// All tensors in the chunks of a drop are made together. Recipes run with their results in pieces of scratch
// (moves/scratch.h); when all is there, the dropped chunks get its piece. So no thread ever sees a half made tensor.
// The class keeps the lineage of the running step, and which of its ops gave the same bytes when they were tried.
//
// Where recipes' work is queued, all that an op needs is made in one go, each producer once, if it takes at most half
// of fast memory. Dead tensors that are made as means die again behind the last op that uses them. Else one drop is
// made after the other, sources first, so that made ones can leave again. A thread that touches a dropped chunk without
// an announcement waits, and a thread of ours makes it; on a GPU an op, or hold(), makes its operands before.
//
// Locks: functions say which they are called with. `making_` is held while something is dropped or made, and taken
// before the session's; recipes run without the session's lock. The op thread alone calls try_again() and remember().
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "moves/scratch.h"
#include "session/arena.h"
#include "session/awaited_chunks.h"
#include "session/lineage.h"
#include "session/recipe_runs.h"
#include "session/step_logger.h"

namespace vedette::detail {

class Recomputer {
 public:
  struct Parts {  // of the session
    std::mutex& mutex;
    Arena& arena;
    StepLogger& logger;
    Executor& executor;                        // it has scratch()
    const std::atomic<std::uint32_t>& frames;  // of fast memory, relaxed
    Observer* observer = nullptr;
  };
  explicit Recomputer(const Parts& parts);

  // --- with the session's lock ---------------------------------------------------------------------------------------
  Lineage& lineage() noexcept { return lineage_; }
  // While nothing is to be dropped, ops and births need not be told. Later ones know nothing of those before.
  void rest(bool rests) {
    if (rests_ && !rests) lineage_.forget();
    rests_ = rests;
  }
  bool rests() const noexcept { return rests_; }  // on the op thread also without the lock
  bool has_dropped() const noexcept { return !dropped_.empty(); }
  bool can_be_made(ChunkRange chunks) const { return dropped_of(chunks).has_value(); }  // every tensor that lives there
  // An op uses `operands` and changes the tensors `writes`: something has to be made before.
  bool in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const;
  // It dies. False: it must not yet, something has to be made before.
  [[nodiscard]] bool let_die(std::uint32_t tensor);

  // --- without any lock ----------------------------------------------------------------------------------------------
  void drop(ChunkRange chunks);  // between ops; nothing, where they cannot be recomputed
  void make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes);
  void make_before_death(std::uint32_t tensor);
  void make_all();
  // Runs the recipe of an op that has just run, into scratch. True: its results have the same bytes. `trust`: ops like
  // one that was tried before are not tried.
  bool try_again(std::uint32_t op, bool trust);
  void remember(std::uint32_t op, bool runs_again) {  // of the running step
    runs_again_.resize(op);
    runs_again_.push_back(runs_again ? 1 : 0);
  }
  std::vector<char> remembered() { return std::move(runs_again_); }

  struct Figures {
    std::uint64_t bytes_recomputed = 0, ops_recomputed = 0, recompute_ns = 0;
  };
  Figures figures() const noexcept { return figures_; }  // with the session's lock

  void note(ChunkIndex wanted) noexcept { awaited_.note(wanted); }  // a thread waits for it; with any lock held
  void stop() noexcept { awaited_.stop(); }                         // when nothing is dropped any more

 private:
  using Tensors = std::vector<std::uint32_t>;  // of the step's log
  using Firsts = std::vector<std::uint32_t>;   // of what is dropped, ascending
  struct Dropped {
    ChunkRange chunks;
    Tensors tensors;  // that live there
    Lineage::Way way;
    bool being_made = false;
  };
  using AllDropped = std::map<std::uint32_t, Dropped>;  // by first chunk; disjoint

  // --- with the session's lock
  ChunkRange chunks_of(std::uint32_t tensor) const;
  ChunkRange hull(const Tensors& tensors) const;
  std::optional<Tensors> tensors_in(ChunkRange chunks) const;  // nullopt: some are in no log
  // All that is made, and the operands and allocations of the largest op: into half of fast memory. The other half is
  // for the running op and what its scratch pushes out. Those `together` take what lies between them, too.
  bool fits(const Lineage::Way& way, const Tensors& together = {}) const;
  bool needs(const Lineage::Way& way, ChunkRange chunks, std::set<std::uint32_t>& seen) const;
  std::optional<Lineage::Way> way_of(const Tensors& tensors, ChunkRange chunks) const;
  std::optional<Dropped> dropped_of(ChunkRange chunks) const;  // as it would be; nullopt: it cannot be recomputed
  std::ranges::subrange<AllDropped::const_iterator> lying_in(ChunkRange chunks) const;
  Firsts concerned(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const;
  void add(Dropped dropped);
  void remove(std::uint32_t first);
  void count_sources(const Lineage::Way& way, int change);
  Firsts with_dropped_sources(Firsts wanted) const;
  RecipeRuns::Made piece_for(const Tensors& tensors) const;
  void prepare(RecipeRuns& work, const Lineage::Way& way, const Firsts& wanted) const;

  // --- with making_
  template <class Wanted>
  void make_while(Wanted wanted);           // wanted(): what is yet to be made, with the session's lock
  bool make_together(const Firsts& asked);  // false: it cannot be, and nothing was made
  void make_one(std::uint32_t first);
  RecipeRuns recipe_runs() { return {session_.mutex, session_.arena, scratch_}; }
  RecipeRuns::Outcome run_and_adopt(const Lineage::Way& way, const Firsts& wanted);  // of what is being made
  void report(RecipeRuns& work, Nanoseconds began, std::uint64_t stalled);
  // The way's last op gives the results, made elsewhere, the bytes that they have.
  bool gives(const Lineage::Way& way, const Tensors& results);
  void make_awaited(ChunkIndex chunk);  // takes making_

  const Parts session_;
  Scratch& scratch_;
  Lineage lineage_;
  Figures figures_;    // with the session's lock
  std::mutex making_;  // held while something is dropped or made; taken before the session's lock
  // guarded by the session's lock
  AllDropped dropped_;
  std::unordered_map<std::uint32_t, std::uint32_t> sources_;  // tensors that dropped ones are made from: by how many
  bool rests_ = false;                                        // changed by the op thread
  std::vector<char> runs_again_;                              // [op], of the running step
  static constexpr std::size_t most_tried = 16'384;           // half a megabyte; then all are tried anew
  std::unordered_map<std::uint64_t, bool> tried_;             // by signature
  AwaitedChunks awaited_;
};

}  // namespace vedette::detail
