// Streams, events and copy engines of the simulated GPU. A stream is a thread that does its commands in order; order
// between streams exists only through events, words of memory and waits of the host.
//
// Handles are those of CUDA: nullptr, 1 and 2 are the default stream. A handle that was destroyed ends the process with
// a sentence. Thread rule: any thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/api.h"
#include "simulated_gpu/order.h"

namespace vedette::simulated {

class Capture;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(Order::StreamNumber number, bool blocking = false) : number_(number), blocking_(blocking) {}
  Order::StreamNumber number() const noexcept { return number_; }
  bool blocking() const noexcept { return blocking_; }  // it and the default stream wait for each other
  void push(std::function<void()> command);
  void destroy();   // its thread ends when it has done what was pushed
  bool has_gone();  // destroyed, and its commands are done
  bool idle();
  void wait();             // the host, for all that was pushed before; what is pushed meanwhile may still run
  void wait_for_queued();  // the same, though it is captured
  void wait_unordered();   // the same, and the host has learnt nothing: the real device would not wait
  std::shared_ptr<Capture> capture();  // where what is queued is kept (graphs.h); nullptr: it is queued
  void set_capture(std::shared_ptr<Capture> capture);
  // Not 0: the host may not wait for it or ask, since it is captured, and the capture is spoilt.
  int refuses_waits();

 private:
  void work() noexcept;
  void wait_until_ended();
  const Order::StreamNumber number_;
  const bool blocking_;
  std::mutex guard_;
  std::condition_variable more_, less_;
  std::deque<std::function<void()>> commands_;
  std::uint64_t pushed_ = 0, ended_ = 0;
  std::multiset<std::uint64_t> awaited_;  // counts of ended commands, one a waiting thread
  bool started_ = false, destroyed_ = false;
  std::shared_ptr<Capture> capture_;
};

// A wait is for the record that was the latest when the wait was queued. A later record leaves it alone: it may be of
// another stream, and pass first.
class Event : public std::enable_shared_from_this<Event> {
 public:
  explicit Event(bool timed) : timed_(timed) {}
  void record(Stream&);
  int let_wait(Stream&);  // the error: it would cross the border of a capture
  int refuses_waits();    // of the host, as its latest record is captured: the error
  bool done();
  void wait();  // the host
  bool timed() const noexcept { return timed_; }
  std::chrono::steady_clock::time_point at();

 private:
  struct Record {
    std::shared_ptr<const VectorClock> clock;
    bool passed = false;
  };
  void wait_for(const Record& record);
  const bool timed_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::shared_ptr<Record> latest_;  // nullptr: it was never recorded
  std::chrono::steady_clock::time_point at_;
  struct {
    bool is_latest = false;
    std::weak_ptr<Capture> capture;
    std::size_t record = 0;
  } captured_;
};

struct Access {
  const void* at = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

std::shared_ptr<Stream> stream_of(cuda::StreamHandle);
std::shared_ptr<Event> event_of(cuda::EventHandle);
cuda::StreamHandle make_stream(bool blocking = false);
void destroy(cuda::StreamHandle);
cuda::EventHandle make_event(bool timed);
void destroy(cuda::EventHandle);
std::size_t live_streams();
std::size_t live_events();
void wait_for_device();  // the host

// Queues a kernel that makes these accesses; `what` names it in sentences.
void launch(Stream&, std::string_view what, const std::vector<Access>& accesses, std::function<void()> kernel);
void note_accesses(Stream&, std::string_view what, const std::vector<Access>& accesses);
// What the default stream queues waits for all blocking streams, and what these queue waits for it.
void order_with_default(Stream&);
// Host or device addresses. Through an engine where one side is the host.
void copy(Stream&, void* to, const void* from, std::size_t bytes, bool of_a_batch = false);
void charge_link(bool to_device, std::size_t bytes,
                 bool of_a_batch = false);  // on a stream's thread: returns when the link would be done

}  // namespace vedette::simulated
