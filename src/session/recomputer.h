// Drops tensors of a step that repeats, and recomputes them. What always holds: everything dropped can be recomputed
// from what lives. So before an op changes a source of it, or a source dies, it is made; sources that can be made
// themselves may die or be dropped.
//
// There are two: chunk_recomputer.h for memory whose chunks move, tensor_recomputer.h for memory where tensors move
// whole. Both keep the lineage of the running step, and which of its ops gave the same bytes when they were tried.
//
// Locks: functions say which they are called with. The op thread alone calls try_again() and remember().
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "moves/executor.h"
#include "session/arena.h"
#include "session/lineage.h"
#include "session/step_logger.h"

namespace vedette::detail {

class Recomputer {
 public:
  struct Parts {  // of the session
    std::mutex& mutex;
    Arena& arena;
    StepLogger& logger;
    Executor& executor;
    const std::atomic<std::uint32_t>& frames;  // of fast memory, relaxed
    Observer* observer = nullptr;
  };
  virtual ~Recomputer() = default;

  // --- with the session's lock ---------------------------------------------------------------------------------------
  Lineage& lineage() noexcept { return lineage_; }
  // While nothing is to be dropped, ops and births need not be told. Later ones know nothing of those before.
  void rest(bool rests) {
    if (rests_ && !rests) lineage_.forget();
    rests_ = rests;
  }
  bool rests() const noexcept { return rests_; }  // on the op thread also without the lock
  virtual bool has_dropped() const noexcept = 0;
  virtual bool can_be_made(ChunkRange chunks) const = 0;  // every tensor that lives there
  // An op uses `operands` and changes the tensors `writes`: something has to be made before.
  virtual bool in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const = 0;
  // It dies. False: it must not yet, something has to be made before.
  [[nodiscard]] virtual bool let_die(std::uint32_t tensor) = 0;

  // --- without any lock ----------------------------------------------------------------------------------------------
  virtual void drop(ChunkRange chunks) = 0;  // between ops; nothing, where they cannot be recomputed
  virtual void make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) = 0;
  virtual void make_before_death(std::uint32_t tensor) = 0;
  virtual void make_all() = 0;
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

  virtual void note(ChunkIndex) noexcept {}  // a thread waits for this dropped chunk; with any lock held
  virtual void stop() noexcept {}            // when nothing is dropped any more

 protected:
  explicit Recomputer(Parts parts) : session_(parts) {}
  struct Result {  // of an op that has just run
    std::uint32_t tensor = 0;
    const std::byte* at = nullptr;
  };
  // The way's last op gives the results, made elsewhere, the bytes that they have.
  virtual bool gives(const Lineage::Way& way, std::span<const Result> results) = 0;
  // --- with the session's lock
  ChunkRange chunks_of(std::uint32_t tensor) const;
  // All that is made, and the operands and allocations of the largest op: into half of fast memory. The other half is
  // for the running op and what its scratch pushes out.
  bool fits(const Lineage::Way& way) const;
  bool fits_beside(const Lineage::Way& way, std::uint64_t made) const;  // `made`: chunks

  const Parts session_;
  Lineage lineage_;
  Figures figures_;    // with the session's lock
  std::mutex making_;  // held while something is dropped or made; taken before the session's lock

 private:
  bool rests_ = false;                               // changed by the op thread, with the session's lock
  std::vector<char> runs_again_;                     // [op], of the running step
  static constexpr std::size_t most_tried = 16'384;  // half a megabyte; then all are tried anew
  std::unordered_map<std::uint64_t, bool> tried_;    // by signature
};

}  // namespace vedette::detail
