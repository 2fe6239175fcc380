// What every entry point of the simulated driver and runtime begins with, and what the two share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#define SIMULATED_EXPORT extern "C" __attribute__((visibility("default")))

namespace vedette::simulated {

// Counts the call; not 0: the error that the call returns. A call that needs a context returns 201 in a thread that has
// made none current.
int enter(const char* call, bool needs_context = true);
// As enter(), for a call that may wait for the device: refused where a capture forbids it (graphs.h).
int enter_waiting(const char* call);
// For a call that has a name of its own in the script, and is not counted by it; `number` 0: only what holds for each.
int follow_script(const std::string& call, unsigned number = 0);
void fail_call(const std::string& call, unsigned nth, int error);
void fail_no_call();
std::map<std::string, unsigned> calls_made();

void make_context_current(bool current);  // of the calling thread
bool context_is_current();

// Memory as cuMemAlloc and cuMemHostAlloc give it; 0 or the error.
int allocate_device(void** out, std::size_t bytes);
int free_device(void* memory);
// Managed memory lies in frames of the host, which host code and kernels reach at one address. Where a page of it is
// matters only while CUPTI's counters are on (managed.h).
int allocate_managed(void** out, std::size_t bytes);
bool is_managed(const void* at, std::size_t bytes);
int prefetch_managed(const void* at, std::size_t bytes, bool to_device, void* stream);
int advise_managed(const void* at, std::size_t bytes, int advice);  // cuda::Advice
int allocate_host(void** out, std::size_t bytes);
int free_host(void* memory);
int register_host(void* memory, std::size_t bytes);
int unregister_host(void* memory);
std::vector<std::string> memory_leaks();
void tell_leaks_where_asked();  // with `leaks` of options.h: ends the process where something was not given back
void at_exit_tell_races();      // once

// A copy with one side in memory that is not pinned makes the host wait, as the real ones do. `of_a_batch`: it is one
// of those in one call.
int copy_async(void* to, const void* from, std::size_t bytes, void* stream, bool of_a_batch = false);

}  // namespace vedette::simulated
