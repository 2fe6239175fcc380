// Lists of jobs: as text, and one in the setting of Salus' published table.
//
// Pure: text and seed in, jobs out. Any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "share/simulate.h"
#include "vedette/result.h"

namespace vedette::share {

// A line of numbers that a recording has: persistent and ephemeral bytes, floor, the time of a step, the profile.
using OfRecording = std::function<Result<ListedJob>(std::string_view path)>;

// Columns are named in the first line, in any order; times are in seconds, sizes as "8GiB" or bytes:
//   name, iterations, iteration_s, persistent, ephemeral   or, for the last three, recording
//   arrival_s (0), start_s (0), busy (1), weight (1)
//   want (persistent + ephemeral), floor (want), rest (persistent, at most floor)
//   profile: the stall of a step by its lease, "2GiB:0.31 4GiB:0.05"
// Errors are Cause::malformed_input and name the line.
Result<std::vector<ListedJob>> parse_jobs(std::string_view csv, const OfRecording& of_recording);
std::string format_jobs(const std::vector<ListedJob>& jobs);  // the same form

// 100 jobs that are there at once, 303.4 minutes of them, as in table 2 of the paper. Their lengths, which are not
// published, are lognormal (sigma 1.4); networks, iterations and start-up are those of tests/workloads.csv in Salus'
// repository, which has the time alone of three lengths of each.
std::vector<ListedJob> salus_jobs(std::uint64_t seed);

}  // namespace vedette::share
