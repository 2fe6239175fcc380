// The fake's streams, events, kernels and copies. A stream is a thread that does its commands in order.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "gpu_fake/fake.h"

namespace vedette::gpu {

using Clock = std::chrono::steady_clock;

// Commands hold what they need by shared_ptr: a stream or an event may be destroyed before they have run.
struct StreamState {
  std::mutex guard;
  std::condition_variable more;
  std::deque<std::function<void()>> commands;
  bool ended = false;
};

struct StreamTag {
  std::shared_ptr<StreamState> state = std::make_shared<StreamState>();
};

struct EventState {
  std::atomic<int> asked{0}, done{0};  // records
  std::atomic<std::int64_t> at_ns{0};
};

struct EventTag {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace fake {
namespace {

void work(const std::shared_ptr<StreamState>& stream) {
  for (;;) {
    std::unique_lock lock(stream->guard);
    stream->more.wait(lock, [&] { return stream->ended || !stream->commands.empty(); });
    if (stream->commands.empty()) return;
    const std::function<void()> command = std::move(stream->commands.front());
    lock.unlock();
    command();
    lock.lock();
    stream->commands.pop_front();  // only now: an empty queue is a stream that has done all
    --state().pending;
  }
}

int push(StreamHandle stream, std::function<void()> command) {
  ++state().pending;
  const std::lock_guard lock(stream->state->guard);
  stream->state->commands.push_back(std::move(command));
  stream->state->more.notify_one();
  return state().sticky.load();
}

template <class Done>
int wait_for(const Done& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  return state().sticky.load();
}

// Does something to memory that must be there; else the device is broken from now on.
template <class Action>
void with_memory(Address at, std::size_t bytes, const Action& action) {
  const std::shared_lock lock(state().memory);
  if (accessible(at, bytes)) return action();
  log("illegal address");
  state().sticky = 700;
}

std::uint32_t* word(Address at) { return reinterpret_cast<std::uint32_t*>(at); }
volatile std::uint32_t& flag(Address at) { return *reinterpret_cast<volatile std::uint32_t*>(at); }

template <class T>
T argument(void** arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

using Command = std::function<void()>;

// compute and walk: until stopped, or for a time at most. Commands are made when they are launched: arguments live
// until then.
Command busy(void** arguments, bool walks) {
  const auto ns = argument<std::uint64_t>(arguments, 0);
  const auto started = argument<Address>(arguments, 1), stop = argument<Address>(arguments, 2);
  const Address from = walks ? argument<Address>(arguments, 3) : 0;
  const std::size_t bytes = walks ? argument<std::uint64_t>(arguments, 4) * 16 : 0;
  return [=] {
    const auto end = Clock::now() + std::chrono::nanoseconds(ns);
    flag(started) = 1;
    while (flag(stop) == 0 && Clock::now() < end && state().sticky.load() == 0) {
      with_memory(from, bytes, [&] {
        for (std::size_t at = 0; at < bytes; at += 4096) ++*word(from + at);
      });
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
}

Command fill(void** arguments) {
  const auto to = argument<Address>(arguments, 0);
  const std::size_t words = argument<std::uint64_t>(arguments, 1) * 4;
  const auto value = argument<std::uint32_t>(arguments, 2);
  return [=] { with_memory(to, words * 4, [&] { std::fill_n(word(to), words, value); }); };
}

Command read(void** arguments) {
  const auto from = argument<Address>(arguments, 0);
  const std::size_t bytes = argument<std::uint64_t>(arguments, 1) * 16;
  return [=] { with_memory(from, bytes, [] {}); };
}

Command check(void** arguments) {
  const auto from = argument<Address>(arguments, 0), wrong = argument<Address>(arguments, 3);
  const std::size_t words = argument<std::uint64_t>(arguments, 1) * 4;
  const auto value = argument<std::uint32_t>(arguments, 2);
  return [=] {
    with_memory(from, words * 4, [&] {
      if (std::any_of(word(from), word(from) + words, [&](std::uint32_t each) { return each != value; }))
        flag(wrong) = 1;
    });
  };
}

Command each_stride(void** arguments, bool written) {
  const auto from = argument<Address>(arguments, 0);
  const auto stride = argument<std::uint64_t>(arguments, 1), count = argument<std::uint64_t>(arguments, 2);
  return [=] {
    with_memory(from, stride * count, [&] {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (written) *word(from + i * stride) = 1;
        record_fault(from + i * stride, written);
      }
    });
  };
}

Command command_of(const std::string& kernel, void** arguments) {
  if (kernel == "compute") return busy(arguments, false);
  if (kernel == "walk") return busy(arguments, true);
  if (kernel == "read") return read(arguments);
  if (kernel == "write") return fill(arguments);
  if (kernel == "check") return check(arguments);
  return each_stride(arguments, kernel == "store");
}

int push_copy(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  return push(stream, [=] {
    with_memory(from, bytes, [&] {
      if (!accessible(to, bytes))
        log("misuse: a copy to nowhere");
      else
        std::memmove(word(to), word(from), bytes);
    });
  });
}

int copy_batch(Address* to, Address* from, std::size_t* bytes, std::size_t count, CopyAttributes* attributes,
               std::size_t* first, std::size_t attribute_count, StreamHandle stream) {
  if (const int error = enter("cuMemcpyBatchAsync"); error != 0) return error;
  if (attribute_count != 1 || *first != 0 || attributes->source_access_order != 1) {
    log("misuse: attributes of a batch");
    return error_invalid_value;
  }
  for (std::size_t i = 0; i < count; ++i) push_copy(to[i], from[i], bytes[i], stream);
  return success;
}

}  // namespace

void wait_until_idle() {
  wait_for([] { return state().pending.load() == 0; });
}

}  // namespace fake
}  // namespace vedette::gpu

using namespace vedette::gpu;
using namespace vedette::gpu::fake;

// The one function that this driver does not export by name.
FAKE_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int*) {
  *function = nullptr;
  if (version == 13000 && std::string(name) == "cuMemcpyBatchAsync" && script("batch", "1") == "1") {
    *function = reinterpret_cast<void*>(&copy_batch);
  }
  return *function == nullptr ? 500 : 0;
}

FAKE_EXPORT int cuStreamCreate(StreamHandle* stream, unsigned) {
  if (const int error = enter("cuStreamCreate"); error != 0) return error;
  *stream = new StreamTag;
  ++state().streams;
  std::thread(work, (*stream)->state).detach();
  return success;
}

FAKE_EXPORT int cuStreamDestroy_v2(StreamHandle stream) {
  if (const int error = enter("cuStreamDestroy_v2"); error != 0) return error;
  {
    const std::lock_guard lock(stream->state->guard);
    stream->state->ended = true;
    stream->state->more.notify_one();
  }
  delete stream;
  --state().streams;
  return success;
}

FAKE_EXPORT int cuStreamSynchronize(StreamHandle stream) {
  if (const int error = enter("cuStreamSynchronize"); error != 0) return error;
  return wait_for([&] {
    const std::lock_guard lock(stream->state->guard);
    return stream->state->commands.empty();
  });
}

FAKE_EXPORT int cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  if (const int error = enter("cuStreamWaitEvent"); error != 0) return error;
  return push(stream, [event = event->state, asked = event->state->asked.load()] {
    wait_for([&] { return event->done.load() >= asked; });
  });
}

FAKE_EXPORT int cuStreamWaitValue32_v2(StreamHandle stream, Address at, std::uint32_t value, unsigned flags) {
  if (const int error = enter("cuStreamWaitValue32_v2"); error != 0) return error;
  if (flags != stream_wait_value_at_least) return error_invalid_value;
  return push(stream, [=] { wait_for([&] { return flag(at) >= value; }); });
}

FAKE_EXPORT int cuEventCreate(EventHandle* event, unsigned) {
  if (const int error = enter("cuEventCreate"); error != 0) return error;
  *event = new EventTag;
  ++state().events;
  return success;
}

FAKE_EXPORT int cuEventDestroy_v2(EventHandle event) {
  if (const int error = enter("cuEventDestroy_v2"); error != 0) return error;
  delete event;
  --state().events;
  return success;
}

FAKE_EXPORT int cuEventRecord(EventHandle event, StreamHandle stream) {
  if (const int error = enter("cuEventRecord"); error != 0) return error;
  ++event->state->asked;
  return push(stream, [event = event->state] {
    event->at_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    ++event->done;
  });
}

FAKE_EXPORT int cuEventQuery(EventHandle event) {
  if (const int error = enter("cuEventQuery"); error != 0) return error;
  return event->state->done.load() == event->state->asked.load() ? success : error_not_ready;
}

FAKE_EXPORT int cuEventSynchronize(EventHandle event) {
  if (const int error = enter("cuEventSynchronize"); error != 0) return error;
  return wait_for([&] { return event->state->done.load() == event->state->asked.load(); });
}

FAKE_EXPORT int cuEventElapsedTime(float* ms, EventHandle begin, EventHandle end) {
  if (const int error = enter("cuEventElapsedTime"); error != 0) return error;
  *ms = static_cast<float>(end->state->at_ns.load() - begin->state->at_ns.load()) * 1e-6F;
  return success;
}

FAKE_EXPORT int cuModuleLoadData(Module* module, const void* image) {
  if (const int error = enter("cuModuleLoadData"); error != 0) return error;
  *module = reinterpret_cast<Module>(new std::string(static_cast<const char*>(image)));
  return success;
}

FAKE_EXPORT int cuModuleUnload(Module module) {
  delete reinterpret_cast<std::string*>(module);
  return enter("cuModuleUnload");
}

FAKE_EXPORT int cuModuleGetFunction(Function* function, Module module, const char* name) {
  if (const int error = enter("cuModuleGetFunction"); error != 0) return error;
  if (reinterpret_cast<std::string*>(module)->find(std::string(".entry ") + name + "(") == std::string::npos)
    return 500;
  *function = reinterpret_cast<Function>(new std::string(name));  // few, and as long as the process
  return success;
}

FAKE_EXPORT int cuLaunchKernel(Function function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                               unsigned, unsigned, StreamHandle stream, void** arguments, void**) {
  if (const int error = enter("cuLaunchKernel"); error != 0) return error;
  if (blocks == 0 || threads == 0 || threads > 1024) return error_invalid_value;
  return push(stream, command_of(*reinterpret_cast<std::string*>(function), arguments));
}

FAKE_EXPORT int cuMemcpyAsync(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  if (const int error = enter("cuMemcpyAsync"); error != 0) return error;
  return push_copy(to, from, bytes, stream);
}

FAKE_EXPORT int cuMemPrefetchAsync_v2(Address at, std::size_t bytes, Location place, unsigned, StreamHandle stream) {
  if (const int error = enter("cuMemPrefetchAsync_v2", static_cast<int>(place.type)); error != 0) return error;
  return push(stream, [=] { with_memory(at, bytes, [] {}); });
}
