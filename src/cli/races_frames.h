// Frames of the program's own code, from return addresses of its processes. Names are those of the file's table of
// symbols; lines come from addr2line (binutils) where the machine has it and the file was built with -g.
//
// Thread rule: one thread at a time.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profiler/symbols.h"

namespace vedette::cli {

class RacesFrames {
 public:
  // Of an array of FRAME (simulated_gpu/reports.h): "name (file.cc:12)", the innermost first.
  std::vector<std::string> of(const nlohmann::json& native);

 private:
  std::string name(const std::string& file, std::uint64_t offset, const std::string& symbol);
  std::string line(const std::string& file, std::uint64_t offset);
  std::map<std::string, Symbols> files_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> lines_;
};

}  // namespace vedette::cli
