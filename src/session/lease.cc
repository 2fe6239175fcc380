#include "session/lease.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/quiet_thread.h"
#include "base/readable.h"
#include "os/local_socket.h"

namespace vedette::detail {
namespace {

std::atomic<void (*)()> check_while_waiting = nullptr;

using share::Message;
using share::Say;

std::string seconds(std::int64_t ns) {
  const std::int64_t tenths = (ns + 50'000'000) / 100'000'000;
  if (tenths == 0) return std::to_string(ns / 1'000'000).append(" ms");
  return std::to_string(tenths / 10).append(".").append(std::to_string(tenths % 10)).append(" s");
}

std::string words_of_wait(const Message& holder) {
  std::string words = "waits for its turn in the shared memory of " + readable({holder.want});
  if (holder.pid == 0) return words.append(": other jobs have not given enough of it back yet");
  words.append(": ").append(holder.name_text()).append(" (process ").append(std::to_string(holder.pid));
  words.append(") holds ").append(readable({holder.lease}));
  if (holder.step_ns > 0) words.append(", and a step of it takes ").append(seconds(holder.step_ns));
  return words;
}

Message of_needs(Say say, Needs needs) {
  Message message{.say = say, .lease = needs.rest.value};
  message.floor = needs.floor.value;
  message.want = needs.want.value;
  return message;
}

}  // namespace

Result<std::unique_ptr<Lease>> Lease::ask(const std::string& path, std::string_view name, Needs needs,
                                          Speaker speaker) {
  auto socket = connect_to(path);
  if (!socket) return std::unique_ptr<Lease>();
  std::unique_ptr<Lease> lease(new Lease(std::move(socket).value(), needs.want, std::move(speaker)));
  lease->floor_ = needs.floor;
  Message hello = of_needs(Say::hello, needs);
  hello.set_name(name);
  if (!lease->send(hello)) return std::unique_ptr<Lease>();
  lease->listener_ = start_quiet_thread([self = lease.get()]() noexcept { self->listen(); });
  std::unique_lock lock(lease->mutex_);
  lease->await_turn(lock);
  if (lease->refused_)
    return Error{Cause::infeasible, "the shared memory has " + readable_exactly({lease->holder_.want}) + ", and " +
                                        readable_exactly(needs.floor) +
                                        " are the least that works here; give `vedette daemon` more --memory"};
  if (lease->gone_ && lease->lease_.value == 0) {
    lock.unlock();
    return std::unique_ptr<Lease>();
  }
  lock.unlock();
  return lease;
}

Lease::~Lease() {
  send({.say = Say::bye});
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (listener_.joinable()) listener_.join();
}

Bytes Lease::now() const {
  const std::lock_guard lock(mutex_);
  return lease_;
}

void Lease::follow(Resize resize) {
  std::unique_lock lock(mutex_);
  resize_ = std::move(resize);
}

void Lease::follow_no_more() {
  std::unique_lock lock(mutex_);
  is_leaving_ = true;
  changed_.wait(lock, [this] { return !applies_; });
}

bool Lease::send(const Message& message) noexcept {
  // a full socket: the daemon does not read, and hears of the next step
  return send_now(socket_.get(), std::as_bytes(std::span(&message, 1))) != Sent::gone;
}

void Lease::listen() noexcept {
  Message message;
  for (;;) {
    // a size that was not met at once is tried again
    constexpr int again_ms = 250;
    pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, may_be_unmet() ? again_ms : -1) == 0) {
      if (const auto again = unmet()) set_size(*again);
    } else if (receive(socket_.get(), std::as_writable_bytes(std::span(&message, 1)))) {
      hear(message);
    } else {
      return lose_daemon();
    }
  }
}

std::optional<Message> Lease::unmet() const {
  const std::lock_guard lock(mutex_);
  return to_apply_ ? std::nullopt : unmet_;
}

// The thread that waits for its turn may be at one.
bool Lease::may_be_unmet() const {
  const std::lock_guard lock(mutex_);
  return unmet_ || to_apply_ || applies_ || waits_;
}

void Lease::lose_daemon() noexcept {
  const std::lock_guard lock(mutex_);
  gone_ = turn_ = true;
  asked_ = false;
  changed_.notify_all();
}

void Lease::hear(const Message& message) {
  if (message.version != share::protocol) return;
  if (message.say == Say::turn) take_turn(message);
  if (message.say == Say::resize) set_size(message);
  if (message.say != Say::lease || message.yes == 0) return;
  const std::lock_guard lock(mutex_);
  refused_ = true;
  holder_ = message;
  changed_.notify_all();
}

void Lease::take_turn(const Message& turn) {
  const std::lock_guard lock(mutex_);
  if (turn.yes != 0) {
    turn_ = true;
    asked_ = false;
    if (lease_.value == 0) lease_ = {turn.lease};
  } else {
    asked_ = turn_;
    holder_ = turn;
    ++heard_holder_;
  }
  changed_.notify_all();
}

// By the thread that waits for its turn: a GPU's memory changes its size where no op can begin.
void Lease::set_size(const Message& resize) {
  {
    const std::lock_guard lock(mutex_);
    if (waits_ && resize_) {
      to_apply_ = resize;
      changed_.notify_all();
      return;
    }
  }
  apply(resize, /*waits_for_turn=*/false);
}

void Lease::apply(const Message& resize, bool waits_for_turn) {
  const Bytes asked{resize.lease};
  Resize change;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !applies_; });
    if (is_leaving_) return;
    applies_ = asked;
    change = resize_;
  }
  const Bytes now = change ? change(asked, waits_for_turn) : asked;
  {
    const std::lock_guard lock(mutex_);
    unmet_ = now != asked ? std::optional(resize) : std::nullopt;
    lease_ = asked;
    applies_.reset();
    changed_.notify_all();
  }
  send({.say = Say::resized, .lease = now.value, .other_ns = resize.other_ns});
}

void Lease::call_while_waiting(void (*check)()) noexcept { check_while_waiting = check; }

template <class Call>
void Lease::call_unlocking(std::unique_lock<std::mutex>& lock, Call call) {
  lock.unlock();
  try {
    call();
  } catch (...) {
    lock.lock();
    waits_ = false;
    if (to_apply_) unmet_ = std::exchange(to_apply_, std::nullopt);  // the listener's now, until a newer one comes
    throw;
  }
  lock.lock();
}

// Sizes that came before the turn are followed first.
void Lease::await_turn(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::milliseconds before_words{200};  // a turn that comes at once needs none
  constexpr std::chrono::milliseconds between_checks{200};
  const auto words_from = std::chrono::steady_clock::now() + before_words;
  waits_ = true;
  if (applies_ && resize_) {  // the listener's call waits for this thread
    const Bytes size = *applies_;
    lock.unlock();
    resize_(size, /*waits_for_turn=*/true);
    lock.lock();
  }
  while (to_apply_ || !(turn_ || refused_)) {
    if (to_apply_) {
      const Message resize = *std::exchange(to_apply_, std::nullopt);
      lock.unlock();
      apply(resize, /*waits_for_turn=*/true);
      lock.lock();
      continue;
    }
    const bool told = said_holder_ == heard_holder_ || !speaker_;
    if (void (*const check)() = check_while_waiting; told && check != nullptr) {
      if (changed_.wait_for(lock, between_checks) == std::cv_status::timeout) call_unlocking(lock, check);
    } else if (told) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, words_from) == std::cv_status::timeout) {
      said_holder_ = heard_holder_;
      call_unlocking(lock, [&, words = words_of_wait(holder_)] { speaker_(words); });
    }
  }
  waits_ = false;
  if (!gone_ || !resize_ || lease_ >= floor_) return;
  lease_ = floor_;  // no daemon will say so any more
  lock.unlock();
  resize_(floor_, /*waits_for_turn=*/true);
  lock.lock();
}

void Lease::begin_step() {
  std::unique_lock lock(mutex_);
  if (!turn_) await_turn(lock);
  begun_ = std::chrono::steady_clock::now();
}

void Lease::end_step(Nanoseconds stalled, Needs needs) {
  Message message = of_needs(Say::step, needs);
  message.step_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun_).count();
  message.other_ns = (stalled - std::exchange(stalled_, stalled)).value;
  send(message);
  std::unique_lock lock(mutex_);
  floor_ = needs.floor;
  if (!asked_ || gone_) return;
  asked_ = turn_ = false;
  lock.unlock();
  send({.say = Say::done});
}

}  // namespace vedette::detail
