// The prices of near memory and of links, stretch by stretch of the step. They are the dual of a linear program in
// which each tensor stays, moves, or is recomputed between its uses. With prices given each tensor has a cheapest way
// of its own, which a short dynamic program over the stretches finds. Prices rise where these ways together ask for too
// much, each by steps of its own length (Kingma, Ba, "Adam: a method for stochastic optimization", 2015). The mean of
// the ways says which share of each gap is to be recomputed. Pure.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "policy/canvas/uses.h"
#include "policy/vedette/sweep.h"
#include "vedette/model.h"

namespace vedette::planning {

struct GapToMakeAgain {  // a tensor between two uses, after which a producer may make it again
  std::uint32_t tensor = 0, last = 0, next = 0;
  double ns = 0;  // of producers
};

struct StretchPrices {  // [stretch]: ns a byte of near memory; of a nanosecond of each link
  std::vector<double> byte, in, out;
};

struct Priced {
  StretchPrices prices;
  std::vector<double> shares;  // [gap]: of it that is made again
  double waiting_ns = 0;       // of a step, stalls and producers: about the least, by the prices
};

// O(passes x (tensors + uses + stretches that they live through)).
Priced price(const Trace& trace, const Uses& uses, const Setting& setting, const std::vector<GapToMakeAgain>& gaps,
             const StretchPrices& start);

}  // namespace vedette::planning
