// Calls that are counted, that fail when they are asked to, and the interface of control.h.
#include "simulated_gpu/entry.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "simulated_gpu/control.h"
#include "simulated_gpu/graphs.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/order.h"
#include "simulated_gpu/reports.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated {
namespace {

struct Calls {
  std::mutex guard;
  std::map<std::string, unsigned> made;
  std::multimap<std::string, Failing> failing;  // by the number of the call
};

Calls& calls() {
  static Calls* const whole = [] {
    auto* const made = new Calls;
    made->failing = options().failing;
    return made;
  }();
  return *whole;
}

thread_local bool current = false;

}  // namespace

int enter(const char* call, bool needs_context) {
  at_exit_tell_races();
  if (reporting()) report_device();
  Calls& all = calls();
  unsigned number = 0;
  {
    const std::lock_guard lock(all.guard);
    number = ++all.made[call];
  }
  if (const int error = follow_script(call, number); error != 0) return error;
  return needs_context && !current ? cuda::error_invalid_context : cuda::success;
}

int enter_waiting(const char* call) {
  const int error = enter(call);
  return error != 0 ? error : Capture::refuse_waits();
}

int follow_script(const std::string& call, unsigned number) {
  std::multimap<std::string, Failing> script;  // of this call: what it says may take a while, or for ever
  {
    const std::lock_guard lock(calls().guard);
    const auto [begin, end] = calls().failing.equal_range(call);
    script.insert(begin, end);
  }
  return follow(script, call, number);
}

void fail_call(const std::string& call, unsigned nth, int error) {
  Calls& all = calls();
  const std::lock_guard lock(all.guard);
  all.failing.emplace(call, Failing{.nth = all.made[call] + nth, .error = error});
}

void fail_no_call() {
  Calls& all = calls();
  const std::lock_guard lock(all.guard);
  all.failing.clear();
}

std::map<std::string, unsigned> calls_made() {
  Calls& all = calls();
  const std::lock_guard lock(all.guard);
  return all.made;
}

void make_context_current(bool wanted) { current = wanted; }
bool context_is_current() { return current; }

namespace {

std::vector<std::string> all_leaks() {
  std::vector<std::string> found = memory_leaks();
  if (const std::size_t n = live_streams(); n != 0) found.push_back(std::to_string(n) + " streams were not destroyed");
  if (const std::size_t n = live_events(); n != 0) found.push_back(std::to_string(n) + " events were not destroyed");
  return found;
}

}  // namespace

int copy_async(void* to, const void* from, std::size_t bytes, void* handle, bool of_a_batch) {
  if (bytes == 0) return cuda::success;
  const auto stream = stream_of(static_cast<cuda::StreamHandle>(handle));
  const auto pageable = [&](const void* at) { return !memory().holds(at) && !memory().pinned(at, bytes); };
  const bool waits = pageable(to) || pageable(from);
  if (const int refused = waits ? stream->refuses_waits() : 0; refused != 0) return refused;
  copy(*stream, to, from, bytes, of_a_batch);
  if (waits) stream->wait();
  return cuda::success;
}

void tell_leaks_where_asked() {
  const std::vector<std::string> leaks = all_leaks();
  if (options().leaks && !leaks.empty()) misuse("when the primary context is released, " + leaks.front());
}

// Kernels that are still queued would run while the program's globals are being destroyed.
void at_exit_tell_races() {
  static const int once = std::atexit([] {
    wait_for_device();
    const std::size_t count = order().races().size();
    if (count == 0 || reporting()) return;
    std::fflush(nullptr);
    misuse("the process had " + std::to_string(count) + " races, told above");
  });
  static_cast<void>(once);
}

namespace {

class Controlled final : public Control {
 public:
  void choose(const Options& wanted) override { set_options(wanted); }
  void fail(const std::string& call, unsigned nth, int error) override { fail_call(call, nth, error); }
  void fail_none() override { fail_no_call(); }
  std::map<std::string, unsigned> calls() override { return calls_made(); }
  std::vector<std::string> races() override { return order().races(); }
  void forget_races() override { order().forget_races(); }
  std::vector<std::string> leaks() override { return all_leaks(); }
  std::size_t most_in_use() override { return memory().most_in_use(); }
  std::size_t in_use() override { return memory().bytes() - memory().free_bytes(); }
  void launch(cuda::StreamHandle stream, std::string_view what, const std::vector<Access>& accesses,
              std::function<void()> kernel) override {
    simulated::launch(*stream_of(stream), what, accesses, std::move(kernel));
  }
  void* reach(const void* device) override { return memory().reach(device); }
};

}  // namespace
}  // namespace vedette::simulated

SIMULATED_EXPORT vedette::simulated::Control* simulated_gpu() {
  static auto* const control = new vedette::simulated::Controlled;
  return control;
}
