// A program of CUDA on the simulated GPU (src/simulated_gpu): the libraries that are loaded first, and the lines that
// its processes write.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vedette::cli {

struct RacesRun {
  int status = 0;                     // the program's own; 128 and the signal that ended it
  std::vector<nlohmann::json> lines;  // of all its processes (simulated_gpu/reports.h), each process's in order
};

// `words` are the program and its arguments; `options` are words of SIMULATED_GPU, which those of the environment may
// change. Throws Failure: the simulated GPU is not there, or the program cannot be started on it.
RacesRun run_on_simulated_gpu(const std::vector<std::string>& words, const std::string& options);

}  // namespace vedette::cli
