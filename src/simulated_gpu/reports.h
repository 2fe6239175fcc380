// What a process on the simulated GPU writes for `vedette races`: a line of JSON for each pair of commands that nothing
// orders, and at its end one of what was covered.
//
// The environment variable SIMULATED_GPU_REPORTS names a folder; each process writes PID.jsonl there. Lines:
//   {"device": true}                       its first call of the device
//   {"race": {"first": SIDE, "second": SIDE, "begin", "end", "memory", "allocated": [FRAME...]}}
//       SIDE: {"what", "stream", "write", "python": [TEXT...], "of_first_thread": [TEXT...], "native": [FRAME...]}
//       TEXT: "file:line in function"; FRAME: {"file", "offset", "symbol"}, whose offset is that of the call, from
//       where the file is loaded. Frames of the first thread are there where the call is another thread's.
//   {"stopped": SENTENCE}                  the device ended the process
//   {"covered": {"commands": {NAME: COUNT}, "copies", "copied", "streams", "waits", "missing": {NAME: COUNT},
//     "torch": "cuda", "cpu" or ""}}
//
// Thread rule: any thread. The order's own lock is not held.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "simulated_gpu/order.h"

namespace vedette::simulated {

bool reporting();
void report_device();                  // a call was made
void report_race(const Order::Race&);  // each pair of commands once
void report_stop(const std::string& sentence);
void report_covered();  // once, as the process ends

// What is counted, and what memory is, for the lines above. Nothing where no report is written.
void count_command(std::string_view what, Order::StreamNumber stream);
void count_copy(std::size_t bytes, Order::StreamNumber stream);
void count_wait();
void count_missing(std::string_view kernel);  // that is left out
void note_memory(const void* at, std::size_t bytes, const char* how);
void forget_memory(const void* at);

}  // namespace vedette::simulated
