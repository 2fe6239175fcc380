// A training step as a trace made from shapes, op by op: the time of each by a card's roofline, and all scaled to the
// speed that is assumed for the step. The steps are in gpu_shapes.cc and gpu_convolutions.cc.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpu_shapes.h"
#include "vedette/model.h"

namespace vedette::bench {

class RooflineStep {
 protected:
  using Ids = std::vector<TensorIndex>;
  RooflineStep(const char* name, const Card& card, bool can_recompute) : card_(card), can_recompute_(can_recompute) {
    trace_.name = name;
    trace_.source = "made from shapes by bench/gpu_prediction";
    trace_.device = std::string(card.name) + ", by its roofline";
  }

  TensorIndex tensor(const char* name, double bytes, TensorKind kind = TensorKind::activation,
                     bool persistent = false) {
    trace_.tensors.push_back(
        {.name = name, .bytes = {static_cast<std::uint64_t>(bytes)}, .kind = kind, .persistent = persistent});
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }
  Op& op(const char* name, double flop, Ids reads, Ids writes, Phase phase) {
    double bytes = 0;
    for (Ids* ids : {&reads, &writes}) {
      for (const TensorIndex t : *ids) bytes += static_cast<double>(trace_.tensors[t.value].bytes.value);
      std::sort(ids->begin(), ids->end());
      ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
    }
    Op made;
    made.name = name;
    made.phase = phase;
    made.time = {static_cast<std::int64_t>(1e9 * std::max(flop / card_.flops, bytes / card_.memory_bytes_per_s))};
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    made.runs_again = false;
    trace_.ops.push_back(std::move(made));
    return trace_.ops.back();
  }
  void forward(const char* name, double flop, Ids reads, Ids writes) {
    op(name, flop, std::move(reads), std::move(writes), Phase::forward).runs_again = can_recompute_;
  }
  void backward(const char* name, double flop, Ids reads, Ids writes) {
    op(name, flop, std::move(reads), std::move(writes), Phase::backward);
  }

  void scale_to(double seconds) {
    double all = 0;
    for (const Op& each : trace_.ops) all += static_cast<double>(each.time.value);
    const double factor = seconds * 1e9 / all;
    for (Op& each : trace_.ops) each.time = {static_cast<std::int64_t>(static_cast<double>(each.time.value) * factor)};
  }

  const Card card_;
  const bool can_recompute_;
  Trace trace_;
};

}  // namespace vedette::bench
