// A session's place among the jobs that share one memory: what it may fill, and when it runs, as a daemon says
// (`vedette daemon`, share/office.h). Where the daemon has gone, all stays as it was last, and nothing waits any more.
//
// Thread rule: begin_step(), end_step() and the destructor on one thread at a time; a thread of its own follows what
// the daemon says.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/children.h"
#include "base/fd.h"
#include "share/message.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::detail {

struct Needs {
  Bytes floor, want;  // it runs with `floor` at least; more than `want` is of no use
  Bytes rest;         // memory that it cannot give back while it waits
};

class Lease {
 public:
  using Speaker = std::function<void(std::string_view)>;
  // The size that memory has then. `waits_for_turn`: called by the thread that waits in begin_step(); else by another.
  using Resize = std::function<Bytes(Bytes, bool waits_for_turn)>;

  // Waits until the job may begin; the speaker hears which job it waits for. nullptr: no daemon listens at `path`.
  // Errors: the memory is smaller than the floor.
  static Result<std::unique_ptr<Lease>> ask(const std::string& path, std::string_view name, Needs needs,
                                            Speaker speaker);
  ~Lease();  // gives all back

  Bytes now() const;
  Bytes most() const noexcept { return most_; }  // that it wanted first
  void follow(Resize resize);                    // once, before the first step
  void follow_no_more();  // memory is about to go: sizes are not answered any more, and none is being followed
  void begin_step();      // waits for the turn
  // A thread that waits for its turn calls it five times a second, and passes on what it throws: a language's Ctrl-C.
  static void call_while_waiting(void (*check)()) noexcept;
  void end_step(Nanoseconds stalled, Needs needs);  // `stalled`: since the session opened

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  Lease(Fd socket, Bytes most, Speaker speaker)
      : socket_(std::move(socket)), most_(most), speaker_(std::move(speaker)) {}
  void listen() noexcept;
  std::optional<share::Message> unmet() const;
  bool may_be_unmet() const;
  void hear(const share::Message& message);
  void take_turn(const share::Message& turn);
  void set_size(const share::Message& resize);
  void apply(const share::Message& resize, bool waits_for_turn);
  void await_turn(std::unique_lock<std::mutex>& lock);
  template <class Call>
  void call_unlocking(std::unique_lock<std::mutex>& lock, Call call);  // the program's, which may throw
  bool send(const share::Message& message) noexcept;
  void lose_daemon() noexcept;

  const Fd socket_;
  ClosedInChildren alone_{socket_.get()};  // the daemon sees the end of this process, not of its last child
  const Bytes most_;
  const Speaker speaker_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Resize resize_;
  Bytes lease_;
  Bytes floor_;            // with which the next step runs; the thread of steps changes it
  share::Message holder_;  // the job that it waits for
  bool turn_ = false, asked_ = false, gone_ = false, refused_ = false;
  bool waits_ = false;            // a thread, in await_turn()
  std::optional<Bytes> applies_;  // some thread, this size
  bool is_leaving_ = false;
  std::uint64_t heard_holder_ = 0, said_holder_ = 0;  // counts of `holder_`
  std::optional<share::Message> to_apply_;            // by the thread that waits
  std::optional<share::Message> unmet_;               // memory is not what this asks for
  std::chrono::steady_clock::time_point begun_;       // the step
  Nanoseconds stalled_;                               // before it
  std::thread listener_;
};

}  // namespace vedette::detail
