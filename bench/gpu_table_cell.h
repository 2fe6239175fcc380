// One cell of bench/gpu_table: a decoder trained on a GPU in one way, in this process.
//
// Thread rule: the main thread, once a process.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace vedette::bench {

struct DecoderShape {
  std::int64_t layers = 2, heads = 4, width = 64, context = 64, batch = 8, symbols = 97;
  bool bf16 = false;   // at::autocast around the forward pass
  bool fused = false;  // scaled_dot_product_attention; else attention is written out
};

struct CellOptions {
  std::string way = "plain";      // plain, guard, save_on_cpu, checkpoint, managed, bound
  std::string model = "decoder";  // or one of examples/models, which has no checkpointing
  bool recompute = false;         // of guard and bound: tensors may be recomputed
  bool small = false;             // of a model of examples/models
  bool deterministic = false;
  std::uint64_t budget = 0;   // of guard, managed and bound: bytes; 0: what is free
  std::string slow = "host";  // below the guard's GPU
  int warm_up = 3, steps = 10;
  DecoderShape shape;
};

// {"way", "device", "budget", "step_ms": [...], "peak_bytes", "losses": [...], "joules": of a step or null, ...}. Of
// `guard` also the bytes that one of these steps brings, writes and recomputes, and by how many runs of ops. Of
// `managed` also what a step prefetches, and how much of the device was held back. Of `bound`: {"way", "budget",
// "bound_ms", "ideal_ms"}. Throws std::exception with a sentence.
nlohmann::json run_cell(const CellOptions& options);

}  // namespace vedette::bench
