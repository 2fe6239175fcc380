// The layers: a file includes only what stands to its left.
//
//     pure centre    base < model < pack < sim < policy; base < share
//     the machine    base < os < { tier, cuda }
//     alive          os + pack < moves; policy + moves + tier < engine; moves + tier + cuda < gpu
//                    engine + gpu + share < session < { adapter, cli }
//     reading        model < profiler < { adapter, cli }
//
// Public headers belong to the layer that implements them. libtorch is for the adapter and the simulated GPU, and the
// pure centre meets no thread, clock or file.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tidy/sources.h"

namespace vedette::testing::layers_test {
namespace {

using Layers = std::set<std::string>;

const std::map<std::string, Layers> left_of = {
    {"base", {}},
    {"model", {"base"}},
    {"pack", {"base", "model"}},
    {"sim", {"base", "model", "pack"}},
    {"policy", {"base", "model", "pack", "sim"}},
    {"share", {"base"}},
    {"os", {"base"}},
    {"moves", {"base", "model", "pack", "os"}},
    {"tier", {"base", "os"}},
    {"cuda", {"base", "os"}},
    {"simulated_gpu", {"base", "cuda", "adapter"}},
    {"engine", {"base", "moves", "model", "pack", "sim", "policy", "os", "tier"}},
    {"gpu", {"base", "cuda", "moves", "model", "os", "tier"}},
    {"session", {"base", "cuda", "moves", "model", "pack", "sim", "policy", "os", "tier", "engine", "gpu", "share"}},
    {"adapter",
     {"base", "cuda", "moves", "model", "pack", "sim", "policy", "os", "tier", "engine", "session", "profiler"}},
    {"profiler", {"base", "model"}},
    {"cli",
     {"base", "cuda", "moves", "model", "pack", "policy", "sim", "os", "tier", "engine", "gpu", "session", "profiler",
      "share"}},
};

// policy.h is the interface that simulator, engine and policies share, in words of the model. The engine speaks to the
// profiler through observer.h, in words of the model. vedette.h is the umbrella over all but the adapter.
const std::map<std::string, std::string> layer_of_public_header = {
    {"units.h", "base"},           {"result.h", "base"},         {"model.h", "model"},
    {"check.h", "model"},          {"observer.h", "model"},      {"pack.h", "pack"},
    {"policy.h", "model"},         {"replay.h", "sim"},          {"rows.h", "model"},
    {"machine.h", "model"},        {"own_policy.h", "model"},    {"bound.h", "sim"},
    {"session.h", "session"},      {"gpu.h", "model"},           {"vedette.h", "cli"},
    {"torch.h", "adapter"},        {"distributed.h", "adapter"}, {"gpu_observer.h", "model"},
    {"birth_observer.h", "model"}, {"memory_prices.h", "model"},
};

// The layer that a path from the root of the project belongs to; empty when it has none.
std::string layer_of(const std::string& path) {
  std::istringstream parts(path);
  std::string top, second, third;
  std::getline(parts, top, '/');
  std::getline(parts, second, '/');
  std::getline(parts, third, '/');
  if (top == "profiler") return "profiler";
  if (top == "src") return second;
  const auto found = layer_of_public_header.find(third);
  return top == "include" && found != layer_of_public_header.end() ? found->second : "";
}

// The layer that an include names, seen from a file of layer `own`.
std::string included_layer(const std::string& name, const std::string& own) {
  if (name.starts_with("vedette/")) return layer_of("include/" + name);
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? own : name.substr(0, slash);
}

struct Include {
  std::string name;
  bool quoted = false;
};

std::vector<Include> includes(const std::string& text) {
  static const std::regex line(R"(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])", std::regex::multiline);
  std::vector<Include> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), line); at != std::sregex_iterator(); ++at) {
    found.push_back({(*at)[2].str(), (*at)[1].str() == "\""});
  }
  return found;
}

std::vector<Source> layered_files() { return sources({"src", "include", "profiler"}, {".h", ".cc"}); }

TEST(Layers, EveryFileBelongsToOne) {
  const std::vector<Source> files = layered_files();
  ASSERT_GT(files.size(), 20u);
  for (const Source& file : files)
    EXPECT_TRUE(left_of.contains(layer_of(file.path))) << file.path << " is in no layer this test knows";
}

TEST(Layers, AFileIncludesOnlyWhatStandsToItsLeft) {
  for (const Source& file : layered_files()) {
    const std::string own = layer_of(file.path);
    if (!left_of.contains(own)) continue;
    for (const Include& include : includes(file.text)) {
      if (!include.quoted && !include.name.starts_with("vedette/")) continue;
      const std::string other = included_layer(include.name, own);
      EXPECT_TRUE(other == own || left_of.at(own).contains(other))
          << file.path << " (" << own << ") includes " << include.name << " (" << other << ")";
    }
  }
}

// src/policy holds the published papers; canvas/ is shared by all policies, vedette/ is our own planner. Neither
// includes a paper, and no paper includes our planner. Other folders hold helpers of the papers that begin with their
// names: sentinel/ those of sentinel.cc, g10/ those of g10.cc and g10_of_artifact.cc.
TEST(Layers, PoliciesShareOnlyTheirCanvas) {
  const auto room_of = [](const std::string& path) -> std::string {
    const std::string inside = path.substr(std::string("policy/").size());
    if (const std::size_t slash = inside.find('/'); slash != std::string::npos) return inside.substr(0, slash);
    return inside == "makers.h" || inside == "policies.def" ? "makers" : inside;
  };
  std::size_t seen = 0;
  for (const Source& file : sources({"src/policy"}, {".h", ".cc"})) {
    const std::string own = room_of(file.path.substr(std::string("src/").size()));
    for (const Include& include : includes(file.text)) {
      if (!include.name.starts_with("policy/")) continue;
      const std::string other = room_of(include.name);
      ++seen;
      const bool helper = other != "vedette" && own.starts_with(other);
      EXPECT_TRUE(other == own || other == "canvas" || helper || (other == "makers" && own != "canvas"))
          << file.path << " (" << own << ") includes " << include.name << " (" << other << ")";
    }
  }
  EXPECT_GT(seen, 20u);
}

// Listing the top of src/policy is the bibliography: each file makes policies of policies.def, but for the table.
TEST(Layers, TheTopOfThePoliciesIsTheirBibliography) {
  std::size_t papers = 0;
  for (const Source& file : sources({"src/policy"}, {".h", ".cc"})) {
    const std::string inside = file.path.substr(std::string("src/policy/").size());
    if (inside.find('/') != std::string::npos || inside == "makers.h" || inside == "table.cc") continue;
    ++papers;
    EXPECT_TRUE(inside.ends_with(".cc") && std::regex_search(file.text, std::regex(R"(> make_\w+\(std::uint64_t)")))
        << file.path << " makes no policy: a helper belongs into a folder of its paper, or into canvas/";
  }
  EXPECT_GT(papers, 15u);
}

TEST(Layers, OnlyTheAdapterAndTheSimulatedGpuMeetLibtorch) {
  for (const Source& file : layered_files()) {
    if (Layers{"adapter", "simulated_gpu"}.contains(layer_of(file.path))) continue;
    for (const Include& include : includes(file.text)) {
      for (const char* library : {"torch/", "ATen/", "c10/"})
        EXPECT_FALSE(include.name.starts_with(library)) << file.path << " includes " << include.name;
    }
  }
}

TEST(Layers, ThePureCentreMeetsNoThreadClockOrFile) {
  const std::set<std::string> outside = {
      "thread",  "mutex",     "shared_mutex", "condition_variable", "atomic", "future",  "chrono",     "ctime",
      "time.h",  "random",    "fstream",      "iostream",           "cstdio", "stdio.h", "filesystem", "unistd.h",
      "fcntl.h", "pthread.h", "signal.h"};
  for (const Source& file : layered_files()) {
    if (!Layers{"model", "pack", "policy", "share", "sim"}.contains(layer_of(file.path))) continue;
    for (const Include& include : includes(file.text)) {
      EXPECT_FALSE(outside.contains(include.name) || include.name.starts_with("sys/") ||
                   include.name.starts_with("linux/"))
          << file.path << " includes " << include.name;
    }
  }
}

}  // namespace
}  // namespace vedette::testing::layers_test
