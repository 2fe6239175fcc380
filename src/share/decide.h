// Several trainings in one memory: which of them run now, and how much of it each may fill. One function, which a
// simulator and a daemon ask.
//
// A job that waits for its turn needs none of its memory there: what it holds is cold, but for what it cannot give back
// (`rest`). So the sum of leases is at most the capacity, and nothing else has to hold. The published condition of
// Salus (share/lanes.h) is the region in which turns change hands without a transfer.
//
// Always: the sum of leases is at most the capacity. A job that runs has its floor at least, a started one its rest. A
// job that is in a step goes on running. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "vedette/units.h"

namespace vedette::share {

struct StallAt {  // a step waits so long for memory where its lease is so large
  Bytes lease;
  Nanoseconds stall;
};

struct Job {
  Bytes floor, want;                      // it runs with `floor` at least; more than `want` is of no use
  Bytes rest;                             // the part of `floor` that it keeps while it waits
  Bytes persistent, ephemeral;            // in the words of Salus: kept across steps, and what a step has beside
  std::span<const StallAt> profile = {};  // by lease, ascending; none: nothing is known between floor and want
  Nanoseconds step;                       // the time of one, without stalls
  double weight = 1;
  std::optional<Nanoseconds> remaining;  // of compute time; nullopt: unknown, taken as long as it has run
  Nanoseconds used, waited, turn;        // compute time so far; time without a turn; length of the present turn
  // its present state
  Bytes lease;
  std::optional<std::uint32_t> lane;  // of Salus
  bool ready = true;                  // it would run; false: it pauses, or says nothing
  bool started = false, has_turn = false, in_step = false;
};

struct Grant {
  Bytes lease;
  bool turn = false;
  std::optional<std::uint32_t> lane;
};

enum class Order : std::uint8_t {
  fifo,  // by arrival
  srtf,  // shortest remaining time first
  fair,  // least attained service by weight
};
enum class Room : std::uint8_t {
  turns,     // one runs at a time
  together,  // all run that fit at their floor; the rest goes where it saves the most stall
  lanes,     // Salus: one of each lane runs at a time
};

struct Policy {
  std::string_view name;
  Order order = Order::fifo;
  Room room = Room::turns;
  // The part of its time waited by which a job is served sooner, with srtf and fair; 0: a stream of short jobs may keep
  // a long one waiting for ever.
  double ageing = 1.0 / 64;
  Nanoseconds quantum;                       // with fair a turn lasts so long, but for the end of a step
  Nanoseconds patience = {300'000'000'000};  // a job that has waited so long is passed by no later one that starts
};

// fifo, srtf, fair, pack, and those of Salus: salus-fifo, salus-srtf, salus-fair.
std::span<const Policy> policies() noexcept;
const Policy* policy_named(std::string_view name) noexcept;  // nullptr: there is none

// One grant for each of `jobs`, which are in the order of their arrival. A job whose floor is beyond `capacity` gets
// nothing. O(n log n) for n jobs, with `together` of all points of their profiles.
std::vector<Grant> decide(const Policy& policy, std::span<const Job> jobs, Bytes capacity);

// The stall of a step with this lease, by lines between the points of the profile; 0 from `want` on.
Nanoseconds stall_with(const Job& job, Bytes lease) noexcept;

// The jobs in the order in which they are served.
std::vector<std::uint32_t> in_order(const Policy& policy, std::span<const Job> jobs);

}  // namespace vedette::share
