// Programs of kinds that are not among the examples' models, each written as people write them, for libtorch's C++
// frontend. None knows of vedette but by the three calls of a Trial: watch, within, keep.
#pragma once
#include <cstdint>
#include <vector>

#include "adapter/trial.h"

namespace vedette::test::foreign {

constexpr int steps = 6;  // of a program, most of them
constexpr std::int64_t batch = 8;

struct Program {
  const char* name;
  void (*run)(Trial&);
};

std::vector<Program> language_programs();   // sequences: recurrent, attention, experts, caches, embeddings
std::vector<Program> vision_programs();     // images: adversaries, diffusion, segmentation, style, autoencoders
std::vector<Program> optimizer_programs();  // ways to step: averages, closures, nested loops, low precision
std::vector<Program> science_programs();    // sparse, complex, differential equations, compiled, quantized, agents

}  // namespace vedette::test::foreign
