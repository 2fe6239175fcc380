// The common part of trackers with a userfaultfd of their own: a state for each page, the delivery of faults, and the
// turnstile that keeps the answer to a fault out of changes. Faults come as messages to a thread, or as SIGBUS to the
// faulting thread. Each tracker defines the answer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "os/bus_faults.h"
#include "os/page_states.h"
#include "os/page_tracker.h"
#include "os/turnstile.h"
#include "os/uffd.h"

namespace vedette {

class ServedTracker : public PageTracker, private BusServer {
 public:
  Result<void> start(bool signals);  // before the first arm()
  bool sees_system_calls() const noexcept override { return !by_signals() && userfaultfd_.serves_system_calls(); }

 protected:
  using State = PageStates::State;
  static constexpr State armed = 1, read_seen = 2, written = 4, named = 8;

  ServedTracker(Userfaultfd userfaultfd, PageStates states)
      : userfaultfd_(std::move(userfaultfd)), states_(std::move(states)) {}

  // A fault of an armed page, inside the turnstile: on any thread, in a signal handler. True: the access can be
  // repeated.
  virtual bool answer(std::byte* page, State state, bool write) noexcept = 0;
  void stop() noexcept;  // in the destructor of who answers, at its end
  bool by_signals() const noexcept { return claim_.has_value(); }

  Userfaultfd userfaultfd_;
  PageStates states_;
  Turnstile turnstile_;
  std::vector<AddressRange> joined_;

 private:
  bool serve(std::byte* at, bool write) noexcept;
  bool serve_bus(std::byte* at, bool write) noexcept override { return serve(at, write); }

  std::optional<BusClaim> claim_;
  std::unique_ptr<FaultReader> reader_;
};

}  // namespace vedette
