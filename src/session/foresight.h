// The next uses of a step that follows no plan: those that followed the same ops in an earlier step. Steps are compared
// by the kinds of their ops (like_step.h), so that other sizes, and other addresses, make no difference.
//
// How a position is found. A step begins where an earlier one began, preferably the one that came after the step before
// last time. While each op is of the kind that is expected, the position moves on. At the first other op it is lost;
// then the latest three ops are looked up in all steps that are remembered, and the place with the longest common past
// is taken. So stretches that are inserted or missing are skipped. DeepUM's correlation tables of kernels serve the
// same purpose for pages (Jung et al., ASPLOS 2023).
//
// The result. Operands and births bind the tensors of the earlier step to those of the running one. Memory that lives
// across steps is known by its address, or by its tensor of the step before: a cache that is made anew in each step.
// From this come the next use of each tensor, its death, and the fetches: the operands of as many ops ahead as fast
// memory holds beside those of the running op. The look ahead is a quarter as far as ops are as expected in a row, and
// where a wrong one was among the latest fifteen, nothing leaves for a fetch.
//
// What always holds: a wrong guess costs transfers and no bytes. At most `most_steps` steps with `most_ops` ops in all
// are remembered.
//
// Lock rule: not thread safe; the session's lock guards it.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "moves/executor.h"
#include "session/arena.h"
#include "session/like_step.h"

namespace vedette::detail {

class Foresight {
 public:
  static constexpr std::size_t most_steps = 8;
  static constexpr std::size_t most_ops = 200'000;

  explicit Foresight(const Arena& arena) : arena_(arena) {}

  // A step ended; `kinds`: of its ops; `sequence`: a hash of its ops with their sizes. A step with the kinds of one
  // that is remembered takes its place. `timed_later`: the step's number, where the log has no times of its ops: those
  // of other sizes serve until set_times(). True: there was one.
  bool remember(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint64_t sequence,
                std::optional<std::uint64_t> timed_later = {});
  void set_times(std::uint64_t step, std::span<const Nanoseconds> of_ops);
  void begin_step();
  void forget() noexcept;  // all of it: as if no step had run
  // The last op of `log` begins, and no plan is followed. `frames`: of fast memory. The result lives until the next
  // call; nullptr: the position is lost. Looks at ops since the last call, too, so that a step may leave its plan late.
  const Ahead* look(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint32_t frames);
  // The offset of a tensor that lived before the step and that its log does not have yet, by its number there; nullopt:
  // not known. After look(), while the step is as an earlier one.
  std::optional<std::uint64_t> offset_of(std::uint32_t tensor) const;
  bool follows_step_of(std::span<const std::uint64_t> kinds) const {
    return now_.at != none && now_.like->has_kinds(kinds);
  }
  std::uint32_t ops_told() const noexcept { return ops_told_; }  // of the running step
  struct Remembered {
    std::size_t steps = 0, ops = 0, successions = 0;
  };
  Remembered remembered() const noexcept;

 private:
  static constexpr std::uint32_t none = LikeStep::none;
  struct Running {  // the step that runs, beside the one it is compared with
    const LikeStep* like = nullptr;
    std::uint32_t seen = 0;              // ops of the running step
    std::uint32_t at = none;             // the latest one's position in `like`; none: lost
    std::uint32_t expected = 0;          // the next one's, or where it was lost
    std::vector<std::uint32_t> bound;    // [tensor of `like`]: of the log
    std::vector<std::uint64_t> carried;  // [tensor of `like`]: its offset, where the step before made it
    std::optional<BirthsByOp> births;
    std::vector<std::uint32_t> born;           // of the log, since the op before the latest began
    std::uint64_t bytes = 0, bytes_there = 0;  // born in both, lately: how much larger things are
  };
  struct Window {  // ops ahead whose operands are fetched
    std::uint32_t end = 0;
    std::deque<std::uint32_t> chunks;  // that each op of it needs more than those before
    std::uint64_t chunks_in_all = 0;
    std::vector<std::uint32_t> used;  // [tensor of `like`]: one past the last op up to `end` that uses it
    void clear() {                    // another deque would be allocated in each step
      end = 0;
      chunks.clear();
      chunks_in_all = 0;
      used.clear();
    }
  };

  struct Succession {  // one step came after another, the last time
    const LikeStep *before = nullptr, *after = nullptr;
    std::vector<std::uint32_t> from;  // [tensor of `after`]: of `before`, in which it was born; none
    struct Survivor {                 // of `before`, and where `after` uses it first and is without it
      std::uint32_t tensor = 0, first_use = none, dead_at = none;
      bool operator<(const Survivor& other) const noexcept { return tensor < other.tensor; }
    };
    std::vector<Survivor> survivors;  // sorted
  };

  void refresh(LikeStep& step, const StepLog& log, std::uint64_t sequence, std::optional<std::uint64_t> timed_later);
  void learn_succession(const StepLog& log, const LikeStep* after);
  const Succession* last_after(const LikeStep* before) const;
  const Succession* between(const LikeStep* before, const LikeStep* after) const;
  void see(const StepLog& log, std::span<const std::uint64_t> kinds);
  bool goes_on(std::span<const std::uint64_t> kinds);
  void find(std::span<const std::uint64_t> kinds);
  void follow(const LikeStep* like, std::uint32_t at);
  void find_carried();
  void bind(const StepLog& log);
  std::optional<ChunkRange> chunks_of(const StepLog& log, std::uint32_t tensor) const;
  double larger() const noexcept;  // so many times: births of this step, beside those of `like`
  std::uint32_t chunks_born(std::uint32_t op) const;
  void tell(std::uint32_t tensor, std::optional<ChunkRange> chunks, std::uint32_t op);
  void tell_in_next_step(std::uint32_t tensor, std::optional<ChunkRange> chunks);
  void tell_all_uses(const StepLog& log);
  void tell_next_uses(const StepLog& log);
  void widen(const StepLog& log, std::uint32_t frames);
  std::uint32_t widen_by_op(const StepLog& log, std::uint32_t op);

  const Arena& arena_;
  std::deque<std::unique_ptr<LikeStep>> steps_;                   // the latest first
  const LikeStep* before_ = nullptr;                              // the step before the running one
  std::vector<Succession> successions_;                           // the latest last
  std::vector<std::pair<std::uint64_t, std::uint32_t>> carried_;  // tensors born in that step that live: offset
                                                                  // and number there, sorted
  Running now_;
  Window window_;
  bool is_new_position_ = false;
  std::uint32_t ops_told_ = 0;
  std::uint32_t positions_ = 0;  // new ones, in this step
  double wrong_ = 0;             // of the latest ops, over steps: how many were others than was expected
  std::vector<OpMoves::Fetch> fetches_;
  std::vector<OpMoves::NextUse> next_uses_;
  Ahead ahead_;
};

}  // namespace vedette::detail
