// Threads, events and throttled links: see streams.h.
#include "simulated_gpu/streams.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "simulated_gpu/call_stacks.h"
#include "simulated_gpu/graphs.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/reports.h"

namespace vedette::cuda {
struct StreamTag {
  std::shared_ptr<simulated::Stream> stream;
};
struct EventTag {
  std::shared_ptr<simulated::Event> event;
};
}  // namespace vedette::cuda

namespace vedette::simulated {
namespace {

using Clock = std::chrono::steady_clock;

struct Link {
  std::mutex guard;
  Clock::time_point free_at{};
};

struct All {
  std::mutex guard;
  std::vector<std::shared_ptr<Stream>> streams{std::make_shared<Stream>(0)};  // the default one is number 0
  Order::StreamNumber made = 1;
  std::set<cuda::StreamHandle> stream_handles;
  std::set<cuda::EventHandle> event_handles;
  Link to_device, to_host;
  std::set<std::string> have_run;  // kernels, by name
  std::mutex one_at_a_time;        // kernels and copies, where copies wait for kernels
  bool any_blocking = false;       // a stream, of those that were made
};

All& all() {
  static All* const whole = new All;  // for ever: threads of streams outlive main()
  return *whole;
}

Order::Bytes interval(const Access& access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(access.at);
  return {.begin = begin, .end = begin + access.bytes};
}

void alone_where_asked(const std::function<void()>& work) {
  if (!options().copies_wait) return work();
  const std::lock_guard lock(all().one_at_a_time);
  work();
}

}  // namespace

std::shared_ptr<Capture> Stream::capture() {
  const std::lock_guard lock(guard_);
  return capture_;
}

void Stream::set_capture(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(guard_);
  capture_ = std::move(capture);
}

int Stream::refuses_waits() {
  const auto captured = capture();
  if (captured == nullptr) return cuda::success;
  captured->spoil();
  return capture_unsupported;
}

void Stream::push(std::function<void()> command) {
  if (const auto captured = capture())
    return captured->keep(*this, [command = std::move(command)](Stream& on) { on.push(command); });
  const std::lock_guard lock(guard_);
  commands_.push_back(std::move(command));
  ++pushed_;
  if (!started_) std::thread([self = shared_from_this()] { self->work(); }).detach();
  started_ = true;
  more_.notify_one();
}

void Stream::work() noexcept {
  std::unique_lock lock(guard_);
  for (;;) {
    more_.wait(lock, [this] { return !commands_.empty() || destroyed_; });
    if (commands_.empty()) return;
    {
      const std::function<void()> command = std::move(commands_.front());
      commands_.pop_front();
      lock.unlock();
      command();
    }  // what the command held is let go of before the command counts as ended
    lock.lock();
    ++ended_;
    if (!awaited_.empty() && ended_ >= *awaited_.begin()) less_.notify_all();
  }
}

void Stream::destroy() {
  const std::lock_guard lock(guard_);
  destroyed_ = true;
  more_.notify_one();
}

bool Stream::has_gone() {
  const std::lock_guard lock(guard_);
  return destroyed_ && ended_ == pushed_;
}

bool Stream::idle() {
  const std::lock_guard lock(guard_);
  return ended_ == pushed_;
}

void Stream::wait() {
  if (capture() != nullptr)
    misuse("the host waits for a stream that is captured; do it before the capture begins, or after it has ended");
  wait_for_queued();
}

void Stream::wait_until_ended() {
  std::unique_lock lock(guard_);
  const auto mine = awaited_.insert(pushed_);
  less_.wait(lock, [&] { return ended_ >= *mine; });
  awaited_.erase(mine);
}

void Stream::wait_for_queued() {
  const auto clock = order().record(number_);
  wait_until_ended();
  order().host_waits(*clock);
}

void Stream::wait_unordered() {
  if (options().first_calls_order) return wait();
  wait_until_ended();
}

void Event::record(Stream& stream) {
  const auto capture = stream.capture();
  {
    const std::lock_guard lock(guard_);
    captured_.is_latest = capture != nullptr;
    captured_.capture = capture;
    if (capture != nullptr) captured_.record = capture->record(stream);
  }
  if (capture != nullptr) return;
  const auto record = std::make_shared<Record>(Record{.clock = order().record(stream.number())});
  {
    const std::lock_guard lock(guard_);
    latest_ = record;
  }
  stream.push([self = shared_from_this(), record] {
    const std::lock_guard lock(self->guard_);
    record->passed = true;
    if (self->latest_ == record) self->at_ = Clock::now();
    self->changed_.notify_all();
  });
}

void Event::wait_for(const Record& record) {
  std::unique_lock lock(guard_);
  changed_.wait(lock, [&] { return record.passed; });
}

int Event::let_wait(Stream& stream) {
  std::shared_ptr<const Record> record;
  {
    const std::lock_guard lock(guard_);
    if (captured_.is_latest) {
      const auto capture = captured_.capture.lock();
      return capture == nullptr ? capture_isolation : capture->let_wait(stream.shared_from_this(), captured_.record);
    }
    record = latest_;
    if (const auto capture = stream.capture(); capture != nullptr && record != nullptr)
      return capture->spoil(), capture_isolation;
    if (record != nullptr) order().stream_waits(stream.number(), *record->clock);
    count_wait();
  }
  if (record != nullptr) stream.push([self = shared_from_this(), record] { self->wait_for(*record); });
  return cuda::success;
}

int Event::refuses_waits() {
  const std::lock_guard lock(guard_);
  if (!captured_.is_latest) return cuda::success;
  if (const auto capture = captured_.capture.lock()) capture->spoil();
  return captured_event;
}

namespace {
// c10d's thread that asks each 100 ms whether a collective has ended: what it learns orders nothing of the program's.
bool is_a_watchdog() {
  char name[16] = {};
  return ::prctl(PR_GET_NAME, name) == 0 && std::strncmp(name, "pt_nccl_", 8) == 0;
}
}  // namespace

bool Event::done() {
  const std::lock_guard lock(guard_);
  if (latest_ == nullptr) return true;
  if (!latest_->passed) return false;
  if (!is_a_watchdog()) order().host_waits(*latest_->clock);
  return true;
}

void Event::wait() {
  std::shared_ptr<const Record> record;
  {
    const std::lock_guard lock(guard_);
    record = latest_;
  }
  if (record == nullptr) return;
  wait_for(*record);
  order().host_waits(*record->clock);
}

Clock::time_point Event::at() {
  const std::lock_guard lock(guard_);
  return at_;
}

std::shared_ptr<Stream> stream_of(cuda::StreamHandle handle) {
  const std::lock_guard lock(all().guard);
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return all().streams.front();
  if (!all().stream_handles.contains(handle))
    misuse("a stream is used that was destroyed or never created; destroy a stream after its last use");
  return handle->stream;
}

std::shared_ptr<Event> event_of(cuda::EventHandle handle) {
  const std::lock_guard lock(all().guard);
  if (!all().event_handles.contains(handle))
    misuse("an event is used that was destroyed or never created; destroy an event after its last use");
  return handle->event;
}

cuda::StreamHandle make_stream(bool blocking) {
  const std::lock_guard lock(all().guard);
  std::erase_if(all().streams, [](const auto& stream) { return stream->has_gone(); });
  all().streams.push_back(std::make_shared<Stream>(all().made++, blocking));
  all().any_blocking = all().any_blocking || blocking;
  auto* const handle = new cuda::StreamTag{all().streams.back()};
  all().stream_handles.insert(handle);
  return handle;
}

void destroy(cuda::StreamHandle handle) {
  const std::shared_ptr<Stream> stream = stream_of(handle);
  const std::lock_guard lock(all().guard);
  if (all().stream_handles.erase(handle) == 0) misuse("the default stream is destroyed; leave it alone");
  stream->destroy();
  delete handle;
}

cuda::EventHandle make_event(bool timed) {
  auto* const handle = new cuda::EventTag{std::make_shared<Event>(timed)};
  const std::lock_guard lock(all().guard);
  all().event_handles.insert(handle);
  return handle;
}

void destroy(cuda::EventHandle handle) {
  event_of(handle);  // commands that are queued hold the event itself
  const std::lock_guard lock(all().guard);
  all().event_handles.erase(handle);
  delete handle;
}

std::size_t live_streams() {
  const std::lock_guard lock(all().guard);
  return all().stream_handles.size();
}

std::size_t live_events() {
  const std::lock_guard lock(all().guard);
  return all().event_handles.size();
}

void wait_for_device() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(all().guard);
    streams = all().streams;
  }
  for (const auto& stream : streams) stream->wait_for_queued();
}

void note_accesses(Stream& stream, std::string_view what, const std::vector<Access>& accesses) {
  if (!options().races) return;
  const std::uint32_t stack = accesses.empty() ? 0 : stack_here();
  for (const Access& access : accesses) {
    for (const Order::Race& race : order().access(stream.number(), interval(access), access.write, what, stack))
      report_race(race);
  }
}

void order_with_default(Stream& stream) {
  if (!stream.blocking() && stream.number() != 0) return;
  std::vector<std::shared_ptr<Stream>> before;
  {
    const std::lock_guard lock(all().guard);
    if (!all().any_blocking) return;
    for (const auto& each : all().streams)
      if (each.get() != &stream && (stream.blocking() ? each->number() == 0 : each->blocking())) before.push_back(each);
  }
  for (const auto& each : before) {
    if (each->capture() != nullptr) continue;
    const auto event = std::make_shared<Event>(false);
    event->record(*each);
    event->let_wait(stream);
  }
}

namespace {

// A kernel's first run makes globals that later runs use, oneDNN's cache for instance. As the process ends they are
// destroyed before an exit handler of earlier runs, so that it waits too late.
void wait_at_exit_before_globals_of(const std::string& kernel) {
  {
    const std::lock_guard lock(all().guard);
    if (!all().have_run.insert(kernel).second) return;
  }
  static_cast<void>(std::atexit(wait_for_device));
}

}  // namespace

void launch(Stream& stream, std::string_view what, const std::vector<Access>& accesses, std::function<void()> kernel) {
  if (const auto capture = stream.capture())
    return capture->keep(stream, [name = std::string(what), accesses, kernel = std::move(kernel)](Stream& on) {
      launch(on, name, accesses, kernel);
    });
  order_with_default(stream);
  note_accesses(stream, what, accesses);
  count_command(what, stream.number());
  stream.push([name = std::string(what), kernel = std::move(kernel)] {
    running = name.c_str();
    alone_where_asked(kernel);
    running = nullptr;
    wait_at_exit_before_globals_of(name);
  });
}

void charge_link(bool to_device, std::size_t bytes, bool of_a_batch) {
  const Options& wanted = options();
  if (wanted.gbs <= 0 && wanted.latency_us <= 0) return;
  Link& link = to_device || wanted.one_engine ? all().to_device : all().to_host;
  const double latency_us = of_a_batch ? wanted.latency_us / 3 : wanted.latency_us;  // as on an H200
  const double seconds = latency_us * 1e-6 + (wanted.gbs > 0 ? static_cast<double>(bytes) / (wanted.gbs * 1e9) : 0);
  Clock::time_point until;
  {
    const std::lock_guard lock(link.guard);
    const auto took = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    until = link.free_at = std::max(Clock::now(), link.free_at) + took;
  }
  std::this_thread::sleep_until(until);
}

void copy(Stream& stream, void* to, const void* from, std::size_t bytes, bool of_a_batch) {
  if (const auto capture = stream.capture())
    return capture->keep(stream, [=](Stream& on) { copy(on, to, from, bytes, of_a_batch); });
  order_with_default(stream);
  count_copy(bytes, stream.number());
  note_accesses(stream, "copy", {{.at = from, .bytes = bytes}, {.at = to, .bytes = bytes, .write = true}});
  stream.push([=] {
    running = "a copy";
    alone_where_asked([&] {
      Memory& all_memory = memory();
      std::memmove(all_memory.reach(to), all_memory.reach(from), bytes);
      if (all_memory.holds(to) != all_memory.holds(from)) charge_link(all_memory.holds(to), bytes, of_a_batch);
    });
    running = nullptr;
  });
}

}  // namespace vedette::simulated
