// The seam between vedette and the kernel, for fault injection. It counts every system call of src/base, src/os,
// src/tier and src/engine, and every transfer that a disk answers. The n-th of them fails, stops half-way, comes late
// or brings other bytes. The linker inserts it (--wrap), so the library under test is the one that ships.
//
// Invariants: without arm() and forbid() every call goes through untouched. A broken call does what a kernel
// could have done: a failed one has no effect, a brief one does a part and says so. Seeded: the same n, kind and seed
// choose the same errno. Thread rule: counts calls of all threads; arm() and forbid() before the subject starts.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

namespace vedette::testing {

enum class Break : std::uint8_t {
  fail,  // with an errno that this call is known to have
  // a part is done: fewer bytes, fewer pages; calls that know no parts fail with EINTR or EAGAIN where they may
  brief,
  late,     // done, 20 ms later
  corrupt,  // of a transfer from the disk: one bit is another; other calls are left alone
};
constexpr const char* break_names[] = {"fails", "is brief", "is late", "is corrupt"};

struct BreakAt {
  std::uint64_t nth = 0;  // counted from 0 since arm(); corrupt: only transfers from the disk count
  Break how = Break::fail;
  std::uint64_t seed = 1;
};

enum class Forbidden : std::uint8_t { nothing, userfaultfd, io_uring, both };

void arm(std::optional<BreakAt> at);                // counting starts; nullopt: only counts
void forbid(Forbidden what);                        // as a container would: EPERM for each call
std::uint64_t calls_made(Break how = Break::fail);  // that can be broken like that
// Where the name of the call that was broken is put, when it is; stays nullptr where it was not reached, or left alone.
void tell_broken(std::atomic<const char*>* name);

// How often each call was made, by name. Names are literals: the same in every fork.
struct CallNames {
  struct Entry {
    std::atomic<const char*> name{nullptr};
    std::atomic<std::uint64_t> calls{0};
  };
  Entry entries[48];
  void count(const char* name);
};
void tell_names(CallNames* names);  // where they are counted from arm() on; nullptr: nowhere

}  // namespace vedette::testing
