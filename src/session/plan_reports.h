// Says to observers and to the program what becomes of plans; Session::planned_steps() says it, too.
//
// What always holds: a sentence about the whole program is said once; why a bucket has no plan is said once for each
// plan, and only when sections can no longer help.
//
// Lock rule: not thread safe; the session's lock guards it, and it is called with it.
#pragma once
#include <cstdint>

#include "session/buckets.h"
#include "session/common.h"

namespace vedette::detail {

class PlanReports : PartOfSession {
 public:
  explicit PlanReports(const Common& session) : PartOfSession(session) {}

  void tell_plan(Bucket& bucket, const Machine& machine);  // for which it is; steps follow it from the next one on
  void tell_why_no_plan(Bucket& bucket);
  void say_what_places_came_to(Bucket& bucket);
  void say_that_nothing_moves(const Bucket& ran, const Counters& so_far);
  void advise_on_rows(std::uint32_t chunks);  // that a step touched in parts
  PlannedStep planned_step(const Bucket& bucket) const;

 private:
  void report_places(const Bucket& placed) const;
  Rows rows_of(const Bucket& bucket) const;
  Bytes budget() const { return budget_of(*executor_, options_); }

  bool said_nothing_moves_ = false, advised_on_rows_ = false;
};

}  // namespace vedette::detail
