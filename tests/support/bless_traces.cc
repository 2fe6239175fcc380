// Writes the small traces that are committed under tests/traces: run by hand when the generator changes.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "support/generate_trace.h"

int main(int count, char** arguments) {
  using vedette::testing::TraceShape;
  if (count != 2) {
    std::fputs("usage: bless_traces DIRECTORY\n", stderr);
    return 2;
  }
  const vedette::Bytes kib{std::uint64_t{1} << 10};
  const auto write = [&](const char* name, TraceShape shape) {
    shape.plain_sizes = true;
    vedette::Trace trace = vedette::testing::generate_trace(1, shape);
    trace.name = name;
    std::ofstream(std::filesystem::path(arguments[1]) / (std::string(name) + ".json")) << vedette::format_trace(trace);
  };
  write("chain4", {.layers = 4,
                   .short_lived = 0,
                   .largest_activation = {256 * kib.value},
                   .largest_weight = {64 * kib.value},
                   .moments = 0});
  write("mlp_adam", {.layers = 3,
                     .short_lived = 1,
                     .largest_activation = {128 * kib.value},
                     .largest_weight = {512 * kib.value},
                     .moments = 2});
  write("unet", {.kind = TraceShape::Kind::unet,
                 .layers = 5,
                 .short_lived = 1,
                 .largest_activation = {512 * kib.value},
                 .largest_weight = {32 * kib.value},
                 .moments = 1});
  write("resnet_block", {.kind = TraceShape::Kind::residual,
                         .layers = 3,
                         .short_lived = 2,
                         .largest_activation = {512 * kib.value},
                         .largest_weight = {128 * kib.value},
                         .moments = 1,
                         .frees = true});
  return 0;
}
