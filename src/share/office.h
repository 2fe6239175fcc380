// The books of a daemon that shares one memory among processes: the lease of each, the turns, and letters to clients.
// It owns numbers, no memory; its clients keep to them.
//
// A lease that shrinks counts whole until the client says that the memory is free; only then do others grow. So the sum
// of what clients may hold is at most the capacity, whatever a client does, and one that says nothing keeps what it
// has. Pure: time comes as an argument. One thread.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "share/decide.h"
#include "share/measured_profile.h"
#include "share/message.h"

namespace vedette::share {

using ClientId = std::uint64_t;

struct Letter {
  ClientId to = 0;
  Message message;
};

class Office {
 public:
  Office(const Policy& policy, Bytes capacity) : policy_(policy), capacity_(capacity) {}

  // `pid` is what the kernel says of the client. A message that makes no sense is ignored.
  std::vector<Letter> hear(ClientId client, std::uint32_t pid, const Message& message, Nanoseconds now);
  // The connection has ended, by the client's death for one: what it held is given on.
  std::vector<Letter> left(ClientId client, Nanoseconds now);
  // Once a second: a client that has a turn and says nothing for eight of its steps, 30 s at least, loses the turn, but
  // no memory.
  std::vector<Letter> tick(Nanoseconds now);

  Bytes held() const noexcept;  // at most the capacity
  std::size_t clients() const noexcept { return clients_.size(); }

 private:
  struct Client {
    ClientId id = 0;
    std::uint32_t pid = 0;
    Job job;
    MeasuredProfile profile;
    Bytes of_step;               // its lease as its last step ended; 0: it was changing then
    Bytes told, held;            // its lease as it was told last; what it may hold until it has followed
    Nanoseconds heard, changed;  // when it spoke last; when its turn or wait was counted last
    Nanoseconds longest_step;
    ClientId knows_holder = 0;  // the client that it was told to wait for
    std::int64_t resizes = 0;   // that it was told; an answer to an earlier one counts for nothing
    bool asked = false;         // to give its turn up when its step ends
    bool silent = false;
    std::array<char, 16> name{};
  };

  Client* find(ClientId id) noexcept;
  void welcome(ClientId id, std::uint32_t pid, const Message& hello, Nanoseconds now);
  void read_needs(Client& client, const Message& message) noexcept;
  void hear_step(Client& client, const Message& step) noexcept;
  void count_time(Nanoseconds now) noexcept;
  void settle();
  void shrink(Client& client, Bytes target);
  void grow(Client& client, Bytes target);
  void bound_floors(std::vector<Job>& jobs) const noexcept;
  void pass_turns(const std::vector<Job>& jobs, const std::vector<Grant>& grants);
  void tell_waiting();
  void list_to(ClientId id);
  void say(const Client& to, Message message) { letters_.push_back({to.id, message}); }
  std::vector<Letter> letters() { return std::exchange(letters_, {}); }

  Policy policy_;
  Bytes capacity_;
  std::vector<Client> clients_;  // in the order of arrival
  std::vector<Letter> letters_;
};

}  // namespace vedette::share
