// The traces that tests read.
#include "support/traces.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "model/liveness.h"

namespace vedette::testing {
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> json_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Bytes rounded(Bytes bytes, Bytes granule) {
  return {(bytes.value + granule.value - 1) / granule.value * granule.value};
}

}  // namespace

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Failure({.cause = Cause::system, .message = "cannot read " + file.string()});
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> toy_trace_files() { return json_files(fs::path(VEDETTE_SOURCE_DIR) / "tests" / "traces"); }

Trace load_trace(const fs::path& file) { return parse_trace(read_text(file)).value(); }

std::string data_folder() {
  const char* folder = std::getenv("VEDETTE_DATA");
  return folder ? folder : VEDETTE_DATA_DIR;
}

std::vector<fs::path> given_trace_files() {
  if (data_folder().empty()) return {};
  return json_files(fs::path(data_folder()) / "traces");
}

Machine two_tiers(Bytes fast, Bytes granule, std::uint64_t bytes_per_s) {
  return {.tiers = {{.name = "dram", .capacity = fast, .addressable = true},
                    {.name = "nvme", .capacity = {std::uint64_t{1} << 60}}},
          .links = {{.source = {0}, .target = {1}, .bytes_per_s = bytes_per_s},
                    {.source = {1}, .target = {0}, .bytes_per_s = bytes_per_s}},
          .granule = granule};
}

Machine on_one_bus(Machine machine) {
  for (Link& link : machine.links) link.shared = 0;
  return machine;
}

Bytes smallest_fast_tier(const Trace& trace, Bytes granule) {
  Bytes largest;
  for (const Op& op : trace.ops) {
    Bytes sum = op.workspace;
    for (TensorIndex t : operands(op)) sum += rounded(trace.tensors[t.value].bytes, granule);
    largest = std::max(largest, sum);
  }
  return largest;
}

Bytes ample_fast_tier(const Trace& trace, Bytes granule) {
  Bytes sum;
  for (const Tensor& tensor : trace.tensors) sum += rounded(tensor.bytes, granule);
  Bytes workspace;
  for (const Op& op : trace.ops) workspace = std::max(workspace, op.workspace);
  return sum + workspace;
}

}  // namespace vedette::testing
