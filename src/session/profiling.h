// Which step is profiled page by page (page_profile.h), and with which tracker. It is the first one behind the warm-up
// that has ops; while it runs, pages() is its profile.
//
// Lock rule: the session's lock guards it; only the op thread begins and ends a profile, so that thread reads without.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "session/common.h"
#include "session/op_times.h"
#include "session/page_profile.h"

namespace vedette::detail {

struct Tracking {
  const TrackerKind* tracker = nullptr;  // nullptr: no page can be seen
  std::string passed_over;               // why not a better one
  // Of a GPU's memory, until a step is profiled: ranges of it are named as the arena's are.
  std::unique_ptr<PageTracker> of_gpu = nullptr;
};

class Profiling : PartOfSession {
 public:
  explicit Profiling(const Common& session) : PartOfSession(session) {}
  void start(Tracking tracking) { tracking_ = std::move(tracking); }

  void begin_step(OpTimes& times);                  // profiles it, if it is to be
  void end_step(OpTimes& times);                    // also of one that is cut off
  void remember_usual_times(OpTimes& times) const;  // of the step before, where the one that begins is to be profiled
  PageProfile* pages() const noexcept { return pages_.get(); }  // nullptr: the step is not profiled

  std::string_view tracker() const noexcept {
    return tracking_.tracker == nullptr ? std::string_view() : tracking_.tracker->name;
  }
  void see_no_pages() { tracking_.tracker = nullptr; }  // as on a machine without any page tracker

 private:
  Tracking tracking_;
  std::unique_ptr<PageProfile> pages_;
  bool profiled_ = false;  // some step was
};

}  // namespace vedette::detail
