// Plans and profiles of a session, one bucket for each sequence of ops, as Sentinel's buckets of inputs. A bucket has
// the log of the profiled step, the addresses of its temporaries, its plan, its ops' sections, and the rows its steps
// touched.
//
// A step is recognised op by op: while each op equals the bucket's, the bucket's plan runs. At the first difference
// another bucket with the same beginning takes over. Where there is none, the rest of the step runs on demand and
// becomes a new bucket. A bucket that never ran whole and was left twice is followed again when a step has been it.
//
// What always holds: no two buckets have the same sequence. There are at most ten; of three or more, the books of all
// but the latest take at most `most_books`; of five or more, the zones take what the session allows. Of those that no
// step follows or begins with, the one that has not run for the longest time goes. The first ops of current() are the
// running step's so far.
//
// Lock rule: not thread safe; the session's lock guards it. Only the op thread changes it, so that thread reads
// without.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "session/address_plan.h"
#include "session/row_log.h"
#include "session/section_learner.h"
#include "session/step_plan.h"

namespace vedette::detail {

class Bucket {
 public:
  struct Extent {  // of the arena
    std::uint64_t offset = 0;
    Bytes bytes;
  };

 private:
  struct Program {
    PackedTrace trace;
    std::vector<Extent> places;  // of its tensors
  };
  static Program program_of(const StepLog& log, std::vector<std::uint32_t>* tensors);

  // Made before the plan: packing's memory for a while is not on top of planning's.
  const Program program_;

 public:
  // `log` as the profiled step left it, with the addresses of `addresses`; `hashes` of its ops. `tensors` gets the
  // numbers in the log of program()'s tensors.
  Bucket(std::uint64_t id, const StepLog& log, std::span<const std::uint64_t> hashes, AddressPlan addresses,
         StepPlan::Options options, std::vector<std::uint32_t>* tensors = nullptr);

  std::uint64_t id() const noexcept { return id_; }
  bool begins(std::size_t op, std::uint64_t prefix) const { return op < prefixes_.size() && prefixes_[op] == prefix; }
  std::size_t ops() const noexcept { return prefixes_.size(); }
  Trace program() const { return program_.trace.unpack(); }  // the step in the program's tensors
  const Trace& told_program();                               // the same, kept from now on: for callers that borrow it
  std::span<const Extent> program_places() const noexcept { return program_.places; }  // of program()'s tensors
  std::span<const Extent> in_parts() const noexcept { return in_parts_; }              // of tensors touched in parts
  // The step's log, of which those of other sizes are foretold; nullptr: of this bucket none is.
  struct AsLogged {
    StepLog log;
    std::vector<std::uint64_t> kinds;  // of its ops
  };
  const AsLogged* as_logged() const noexcept { return as_logged_.get(); }
  void keep_log(AsLogged as_logged) { as_logged_ = std::make_unique<const AsLogged>(std::move(as_logged)); }
  // Its first plan was made from those of other sizes; the next one is not.
  bool is_by_likeness() const noexcept { return by_likeness_; }
  void is_planned_by_likeness(bool by_likeness) noexcept { by_likeness_ = by_likeness; }
  void served(std::uint64_t step) noexcept { last_served_ = step; }  // another size
  std::uint64_t last_needed() const noexcept { return std::max(last_run_, last_served_); }
  Bytes books() const noexcept;  // that the bucket takes, about: measured of steps of 100,000 ops
  const AddressPlan& addresses() const noexcept { return addresses_; }

  // Of each, only its own functions change it.
  StepPlan plan;
  SectionLearner sections;
  RowHistory rows;
  std::string why_no_plan;  // to be told once sections can no longer help

  std::uint64_t last_run() const noexcept { return last_run_; }  // step
  std::uint64_t runs() const noexcept { return runs_; }          // whole steps by its plan
  // It has its plan, and steps that begin as the bucket does end as it does, often enough.
  bool is_trusted() const noexcept { return !waits_for_plan_ && (runs_ > 0 || left_ < 2); }
  bool waits_for_its_plan() const noexcept { return waits_for_plan_; }
  void waits_for_plan() noexcept { waits_for_plan_ = true; }  // its first
  void left() { ++left_; }                                    // by a step, in the middle, for no other bucket
  void came_again() { left_ = 0; }
  void profiled(std::uint64_t step, std::uint32_t unplanned_chunks);
  void ran(std::uint64_t step);
  void planned(std::uint64_t step) {
    follows_since_ = step + 1;
    waits_for_plan_ = false;
  }
  // The first of the steps up to the last run that all ran by the plan that the bucket has now.
  std::uint64_t follows_since() const noexcept { return follows_since_; }
  // Its plan was made for steps that follow those by other plans.
  bool is_for_turns() const noexcept { return for_turns_; }
  void make_for_turns(bool for_turns) noexcept { for_turns_ = for_turns; }
  // of each op of `log`, whether its recipe was tried and right
  void can_recompute(const StepLog& log, std::vector<char> ops) {
    plan.can_recompute(log, ops);
    runs_again_ = std::move(ops);
  }
  bool runs_again(std::size_t op) const { return op < runs_again_.size() && runs_again_[op] != 0; }
  std::uint32_t unplanned() const noexcept { return unplanned_; }  // chunks left to tensors that are touched in parts
  void leave_to_small_tensors(std::uint32_t chunks) noexcept { unplanned_ += chunks; }

  // --- plans for several sizes of fast memory ------------------------------------------------------------------------
  std::uint32_t planned_for() const noexcept { return planned_for_; }  // frames
  void made_for(std::uint32_t frames) noexcept { planned_for_ = frames; }
  // Fast memory has so many frames now, `fast_memory` in bytes: the plan is the one for the most frames that are there,
  // and where none was made for so few, the step waits for one. True: a kept plan is followed again.
  bool fit(std::uint32_t frames, Bytes fast_memory, std::optional<Bytes> range, std::uint64_t step);
  // `plan` is replaced. The one before is kept for its size.
  void replace_for_size(StepPlan replacement);
  void forget_other_sizes() { kept_.clear(); }

 private:
  const std::uint64_t id_;
  std::vector<std::uint64_t> prefixes_;  // of each op: the hash of all ops so far
  std::optional<Trace> told_program_;
  std::vector<Extent> in_parts_;
  AddressPlan addresses_;
  std::uint64_t last_run_ = 0, last_served_ = 0, runs_ = 0, follows_since_ = 0;
  std::uint32_t unplanned_ = 0, left_ = 0;
  bool waits_for_plan_ = false, for_turns_ = false, by_likeness_ = false;
  std::unique_ptr<const AsLogged> as_logged_;
  std::vector<char> runs_again_;
  struct Kept {
    std::uint32_t frames = 0;
    StepPlan plan;
  };
  std::size_t most_kept() const noexcept;
  std::uint32_t planned_for_ = 0;
  std::vector<Kept> kept_;  // the latest last; none for planned_for_
};

class BucketStore {
 public:
  static constexpr std::size_t most_buckets =
      10;  // Sentinel has about as many (section on dynamic graphs, as recalled)
  // Beside the latest: the part of a session's overhead for plans of steps that may come again.
  static constexpr Bytes most_books = 16_MiB;

  std::uint64_t next_id() noexcept { return next_id_++; }
  Bucket& add(std::unique_ptr<Bucket> fresh);  // the likeliest from now on

  // --- the running step ----------------------------------------------------------------------------------------------
  Bucket* current() const noexcept { return current_; }  // whose plan runs; nullptr: on demand
  void begin_step() {                                    // with the likeliest
    current_ = latest_ != nullptr && latest_->is_trusted() ? latest_ : nullptr;
    begun_ = nullptr;
    coming_ = nullptr;
    likeness_was_tried_ = false;
  }
  // Once in a step for each plan that runs: memory is not as the plan's own step left it, just before step `step`.
  bool takes_over(std::uint64_t step);
  // After op `op`, with the hash of all ops so far. True: another bucket, or none, is current now.
  bool follow(std::size_t op, std::uint64_t prefix);
  void leave() { current_ = nullptr; }

  // --- other sizes of one sequence -----------------------------------------------------------------------------------
  // Whose logs foretell a step that has begun with ops of these kinds: two, planned for so many frames, the latest
  // first. Fewer: none is foretold.
  std::vector<Bucket*> alike(std::span<const std::uint64_t> kinds, std::uint32_t frames) const;
  bool wants_log(std::span<const std::uint64_t> kinds) const;      // of a step with ops of these kinds
  bool has_sequence(std::span<const std::uint64_t> hashes) const;  // some bucket, trusted or not
  // In this step. Where steps turned out to be others four times in a row, of sixteen steps one is foretold.
  bool likeness_was_tried() const noexcept { return likeness_was_tried_; }
  bool is_often_another(std::uint64_t step) const noexcept {
    constexpr std::uint32_t often = 4;
    constexpr std::uint64_t seldom = 16;
    return others_in_a_row_ >= often && step % seldom != 0;
  }
  void count_foretold(bool was_right) noexcept { others_in_a_row_ = was_right ? 0 : others_in_a_row_ + 1; }
  void try_no_likeness() noexcept { likeness_was_tried_ = true; }
  // A step like the running one to its end, whose plan is being made: its addresses serve until then.
  Bucket& expect(std::unique_ptr<Bucket> foretold);
  Bucket* coming() const noexcept { return coming_; }
  const AddressPlan* addresses() const noexcept {  // nullptr: none is followed
    const Bucket* const bucket = current_ != nullptr ? current_ : coming_;
    return bucket == nullptr ? nullptr : &bucket->addresses();
  }
  std::unique_ptr<Bucket> forget(const Bucket& bucket);  // its zone is the caller's to give back
  // Whether a sequence of ops that no bucket ran, with the hash of all and of each, gets a bucket. While sequences
  // repeat, each new one does at once. Where the latest buckets never ran whole, only one that comes again; `alike`:
  // also where it differs from an earlier one in sizes alone, which another step will hardly have again.
  bool worth_learning(std::uint64_t prefix, std::span<const std::uint64_t> hashes, bool alike);
  // The running step with the ops so far may get one: what costs time and serves a bucket alone is left out elsewhere.
  bool may_be_learned(std::span<const std::uint64_t> hashes) const;
  void ran_whole();
  // Of sixteen whole steps four came after a step of another plan. It ends where sixteen in a row come after one of
  // their own.
  bool in_turns() const noexcept { return in_turns_; }

  Bucket* find(std::uint64_t id) const noexcept;       // nullptr: it is gone
  Bucket* latest() const noexcept { return latest_; }  // that ran whole or was learned
  const std::vector<std::unique_ptr<Bucket>>& all() const noexcept { return buckets_; }
  bool has_run() const noexcept;  // some bucket, whole
  // Removes a bucket that is too many, or takes too much; nullptr: none does. Its zone is the caller's to give back.
  std::unique_ptr<Bucket> retire(Bytes most_zones);
  std::unique_ptr<Bucket> retire_idle();  // neither current(), latest() nor coming(); nullptr: there is none
  void clear();

 private:
  std::vector<std::unique_ptr<Bucket>> buckets_;
  Bucket* current_ = nullptr;
  Bucket* latest_ = nullptr;
  Bucket* coming_ = nullptr;
  bool likeness_was_tried_ = false;
  std::uint32_t others_in_a_row_ = 0;
  const Bucket* begun_ = nullptr;                  // that takes_over() was asked about last, in the running step
  static constexpr std::size_t told_apart_by = 8;  // first ops: other lengths and batches differ in these already
  struct PassedOver {
    std::uint64_t prefix = 0;
    std::vector<std::uint64_t> begin;  // hashes of its first ops
  };
  bool patient() const;                 // a new sequence gets a bucket at once
  std::deque<PassedOver> passed_over_;  // sequences, the latest last
  std::uint16_t turns_ = 0;             // a bit for each of the latest whole steps: another plan ran before it
  bool in_turns_ = false;
  std::size_t passed_in_a_row_ = 0;  // since the last one that got a bucket, or has one
  std::uint64_t next_id_ = 1;
};

}  // namespace vedette::detail
