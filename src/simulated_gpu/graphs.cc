// What captures keep, and how it is queued again: see graphs.h.
#include "simulated_gpu/graphs.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "simulated_gpu/memory.h"

namespace vedette::simulated {
namespace {

struct Running {
  std::mutex guard;
  struct One {
    std::weak_ptr<Capture> capture;
    Capture::Mode mode;
    std::thread::id thread;
  };
  std::vector<One> captures;
  std::uint64_t begun = 0;
};

Running& running_captures() {
  static auto* const all = new Running;  // for ever: threads of streams outlive main()
  return *all;
}

thread_local Capture::Mode mode_here = Capture::Mode::global;

template <class Known>
void join_into(Known& into, const Known& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

int Capture::begin(const std::shared_ptr<Stream>& stream, Mode mode) {
  if (stream->number() == 0) return capture_unsupported;  // the default one
  if (stream->capture() != nullptr) return wrong_thread_or_state;
  Running& all = running_captures();
  const std::lock_guard lock(all.guard);
  const auto capture = std::make_shared<Capture>(++all.begun, mode);
  capture->join(stream);
  all.captures.push_back({capture, mode, std::this_thread::get_id()});
  return cuda::success;
}

int Capture::end(Stream& stream, std::shared_ptr<Capture>* ended) {
  const std::shared_ptr<Capture> capture = stream.capture();
  if (capture == nullptr || capture->member(stream) != 0) return wrong_thread_or_state;
  {
    Running& all = running_captures();
    const std::lock_guard lock(all.guard);
    std::erase_if(all.captures, [&](const auto& one) { return one.capture.lock() == capture; });
  }
  const std::lock_guard lock(capture->guard_);
  capture->let_go();
  if (capture->spoilt_) return capture_invalidated;
  const Known& known = capture->members_.front().known;
  for (std::size_t i = 0; i < capture->members_.size(); ++i)
    if (capture->members_[i].work > (i < known.size() ? known[i] : 0)) return capture_unjoined;
  *ended = capture;
  return cuda::success;
}

// Its streams queue again; under the lock.
void Capture::let_go() {
  ended_ = true;
  for (Member& each : members_) std::exchange(each.stream, nullptr)->set_capture(nullptr);
}

Capture::~Capture() {
  for (const cuda::StreamHandle each : others_) destroy(each);
}

int Capture::refuse_waits() {
  if (mode_here == Mode::relaxed) return cuda::success;
  std::vector<std::shared_ptr<Capture>> spoilt;
  {
    Running& all = running_captures();
    const std::lock_guard lock(all.guard);
    for (const auto& one : all.captures) {
      const bool own = one.thread == std::this_thread::get_id() && one.mode != Mode::relaxed;
      const bool others = mode_here == Mode::global && one.mode == Mode::global;
      if (auto capture = one.capture.lock(); capture != nullptr && (own || others)) spoilt.push_back(capture);
    }
  }
  for (const auto& each : spoilt) each->spoil();
  return spoilt.empty() ? cuda::success : capture_unsupported;
}

Capture::Mode Capture::exchange_mode(Mode mode) { return std::exchange(mode_here, mode); }

void Capture::spoil() {
  const std::lock_guard lock(guard_);
  spoilt_ = true;
}

std::size_t Capture::member(Stream& stream) const {
  const auto is_it = [&](const Member& each) { return each.stream.get() == &stream; };
  return static_cast<std::size_t>(std::find_if(members_.begin(), members_.end(), is_it) - members_.begin());
}

void Capture::join(const std::shared_ptr<Stream>& stream) {
  members_.push_back({.stream = stream, .known = {}});
  stream->set_capture(shared_from_this());
}

void Capture::keep(Stream& on, Command command) {
  const std::lock_guard lock(guard_);
  const std::size_t i = member(on);
  Member& own = members_[i];
  if (own.known.size() <= i) own.known.resize(i + 1);
  own.known[i] = ++own.work;
  items_.push_back({.kind = Item::Kind::work, .member = i, .command = std::move(command)});
}

std::size_t Capture::record(Stream& on) {
  const std::lock_guard lock(guard_);
  const std::size_t i = member(on);
  records_.push_back(members_[i].known);
  items_.push_back({.kind = Item::Kind::record, .member = i, .record = records_.size() - 1, .command = {}});
  return records_.size() - 1;
}

int Capture::let_wait(const std::shared_ptr<Stream>& stream, std::size_t record) {
  const std::shared_ptr<Capture> other = stream->capture();
  if (other != nullptr && other.get() != this) return other->spoil(), capture_isolation;
  const std::lock_guard lock(guard_);
  if (ended_) return capture_isolation;
  if (other == nullptr) join(stream);
  const std::size_t i = member(*stream);
  join_into(members_[i].known, records_[record]);
  items_.push_back({.kind = Item::Kind::wait, .member = i, .record = record, .command = {}});
  return cuda::success;
}

void Capture::replay(const std::shared_ptr<Stream>& on) {
  const std::lock_guard lock(guard_);
  while (others_.size() + 1 < members_.size()) others_.push_back(make_stream());
  std::vector<std::shared_ptr<Stream>> streams{on};
  for (const cuda::StreamHandle each : others_) streams.push_back(stream_of(each));
  std::vector<std::shared_ptr<Event>> events;
  for (std::size_t i = 0; i < records_.size(); ++i) events.push_back(std::make_shared<Event>(false));
  const bool inside = on->capture() != nullptr;  // a part of another graph, which has its own order
  if (!inside && replayed_ != nullptr) replayed_->let_wait(*on);
  for (const Item& item : items_) {
    Stream& stream = *streams[item.member];
    if (item.kind == Item::Kind::work) item.command(stream);
    if (item.kind == Item::Kind::record) events[item.record]->record(stream);
    if (item.kind == Item::Kind::wait) events[item.record]->let_wait(stream);
  }
  if (inside) return;
  replayed_ = std::make_shared<Event>(false);
  replayed_->record(*on);
}

}  // namespace vedette::simulated

using namespace vedette::simulated;
using vedette::cuda::StreamHandle;

SIMULATED_EXPORT int cuThreadExchangeStreamCaptureMode(vedette::cuda::CaptureMode* mode) {
  if (const int error = enter("cuThreadExchangeStreamCaptureMode", false); error != 0) return error;
  *mode = Capture::exchange_mode(*mode);
  return vedette::cuda::success;
}

SIMULATED_EXPORT int cuStreamBeginCapture_v2(StreamHandle stream, int mode) {
  if (const int error = enter("cuStreamBeginCapture_v2"); error != 0) return error;
  return Capture::begin(stream_of(stream), static_cast<Capture::Mode>(mode));
}

SIMULATED_EXPORT int cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  *graph = nullptr;
  if (const int error = enter("cuStreamEndCapture"); error != 0) return error;
  std::shared_ptr<Capture> ended;
  const int error = Capture::end(*stream_of(stream), &ended);
  if (ended != nullptr) *graph = new std::shared_ptr<Capture>(std::move(ended));
  return error;
}

SIMULATED_EXPORT int cuGraphInstantiateWithFlags(GraphHandle* made, GraphHandle graph, unsigned long long) {
  if (const int error = enter("cuGraphInstantiateWithFlags"); error != 0) return error;
  *made = new std::shared_ptr<Capture>(*graph);
  return vedette::cuda::success;
}

SIMULATED_EXPORT int cuGraphLaunch(GraphHandle made, StreamHandle stream) {
  if (const int error = enter("cuGraphLaunch"); error != 0) return error;
  (*made)->replay(stream_of(stream));
  return vedette::cuda::success;
}

SIMULATED_EXPORT int cuGraphDestroy(GraphHandle graph) {
  delete graph;
  return vedette::cuda::success;
}

SIMULATED_EXPORT int cuGraphExecDestroy(GraphHandle made) { return cuGraphDestroy(made); }
