// GPUs by their data sheets, and a recorded step as one of them would run it. By its roofline an op takes as long as
// its arithmetic, or as its bytes in the card's memory, whichever takes longer. `vedette fits` asks.
//
// Thread rule: values; the functions keep nothing.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "vedette/model.h"

namespace vedette {

struct Card {
  std::string_view name, source;
  Bytes memory;
  double memory_bytes_per_s;
  // Multiplications and additions a second, without sparsity: of float32 as PyTorch computes it by default, of float32
  // on tensor cores (TF32), of 16 bits.
  double float32, tensor_float32, half;
  double link_in, link_out;  // bytes a second between it and host memory, both directions at once
  // of the host's memory: HostMemory::bytes_per_s, with the source that the machine preset of that name has; 0: no
  // figure is published, and no limit
  double host_memory = 0;
};
std::span<const Card> cards() noexcept;
const Card* card_named(std::string_view name) noexcept;  // nullptr: there is none

// GPU memory over pinned host memory; tensors move whole.
Machine machine_of(const Card& card, Bytes host);

enum class Estimate : std::uint8_t {
  slow,  // 40 % of the card's arithmetic, float32 without tensor cores, 60 % of its memory's bandwidth, 10 us an op
  fast,  // 80 %, float32 on tensor cores, 90 %, 2 us
};
// The step with the card's times. Arithmetic is counted of matrix products, convolutions and attention, from the shapes
// that the trace has; of an operand without a shape its bytes tell. O(ops + operands).
Trace on_card(Trace trace, const Card& card, Estimate estimate);
// The same where the whole step is known to take `step` with all memory: each op lies between its two estimates, all at
// the same part of the way, in logarithms. A step beyond one of them has that one's times, scaled. O((ops + operands)).
Trace on_card(const Trace& trace, const Card& card, Nanoseconds step);

// Of one op, as above: products and sums, two for each pair. 0: it has no arithmetic to speak of.
double arithmetic_of(const Trace& trace, const Op& op);

}  // namespace vedette
