// Sources of news about memory while a program runs: pressure, limits, and requests from outside.
//
//   pressure   systemd's MEMORY_PRESSURE protocol (systemd.io/MEMORY_PRESSURE: a file, a FIFO or a socket, and what
//   goes
//              there). Without it PSI of the memory cgroup, or of the machine: some thread stalled for 200 ms in 2 s,
//              which needs no privilege (Linux >= 6.5). Of a GPU whose cgroup has a dmem.min: less than 1/32 of its
//              region is free, and the cgroup holds more than that minimum, for which a process may be killed.
//   limits     memory.high and memory.max of the cgroup and of those above it (version 1: memory.limit_in_bytes); of a
//              GPU dmem.max of its region.
//   requests   `vedette set PID SIZE`, through a socket of an abstract name that this user and root may use.
//
// Thread rule: one thread; wake() from any.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/children.h"
#include "base/fd.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

class PressureSources {
 public:
  struct Options {
    std::string root = {};                // before /proc and /sys, for tests
    std::optional<std::string> watch;     // $MEMORY_PRESSURE_WATCH; nullopt: the environment has none
    std::string write = {};               // $MEMORY_PRESSURE_WRITE, in base64
    std::string gpu = {};                 // its bus id; empty: the machine's memory is meant
    std::optional<std::int64_t> process;  // whose requests are heard; nullopt: none are
  };
  static Options of_this_process();  // by the environment

  // A source that cannot be opened is left out, with a sentence in remarks().
  explicit PressureSources(const Options& options);

  struct Request {
    Bytes bytes;
    Fd from;  // for answer()
  };
  struct Heard {
    bool pressure = false;
    std::optional<std::int64_t> headroom;  // bytes below the nearest limit, negative above it; nullopt: no limit
    std::optional<Bytes> borrowed;         // of a GPU: above dmem.min; no more than these go by pressure
    std::vector<Request> requests;
  };
  // Something, or nothing within `timeout`.
  Heard wait(std::chrono::milliseconds timeout);
  void wake() noexcept;  // ends the running or the next wait()
  static void answer(const Request& request, std::string_view sentence) noexcept;
  const std::vector<std::string>& remarks() const noexcept { return remarks_; }
  bool hears_pressure() const noexcept { return static_cast<bool>(pressure_.fd); }

 private:
  void open_protocol(const std::string& path);
  void open_psi();
  void open_requests(std::int64_t process);
  bool take_pressure(short events);
  std::optional<Request> take_request();
  std::optional<std::int64_t> headroom() const;
  std::optional<Bytes> borrowed() const;  // of a GPU
  bool is_full() const;                   // its region

  const Options options_;
  Fd awake_, requests_;
  std::optional<ClosedInChildren> alone_;  // of requests_: in a child the name would be taken, and nothing answer
  struct {
    Fd fd;
    short events = 0;
    bool read = false;  // bytes that tell it have to be read, or it is told again
  } pressure_;
  std::vector<std::string> remarks_;
};

// Asks a process that follows pressure for another size of its fast memory; its answer, one sentence. Errors:
// unavailable where the process does not follow, or does not answer within `patience`.
Result<std::string> ask_for_size(std::int64_t process, Bytes bytes,
                                 std::chrono::milliseconds patience = std::chrono::minutes(1));

}  // namespace vedette
