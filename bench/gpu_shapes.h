// Training steps of models that a data-centre GPU trains, as traces made from their shapes: nothing of them was run.
// Weights, gradients and activations are bf16; the master copy and AdamW's two moments are float32, and attention is
// fused. Each layer's parameters are updated as soon as its backward is over.
//
// An op's time follows the roofline: its arithmetic, or its bytes in the GPU's memory, whichever takes longer. All
// times are then scaled so that the step has the speed that is assumed for the model.
#pragma once
#include <span>
#include <string>

#include "vedette/model.h"

namespace vedette::bench {

// A sheet: bf16 without sparsity, and its memory. `preset` is the machine around it (vedette/machine.h).
struct Card {
  const char *name, *preset;
  double flops, memory_bytes_per_s;
  double usable;          // bytes of its memory, beside libraries and fragments
  bool decoders = false;  // those alone are predicted for it
  // of the host's memory, beside the preset's: GB/s, what its processor takes of them, and the source; 0: the preset's
  double host = 0, processor = 0;
  const char* host_source = "";
  double beside_h100() const { return flops / 989e12; }
};
std::span<const Card> cards();

struct Transformer {
  const char* name;
  double width, layers, tokens, length, vocabulary;
  // assumed of the whole step on an H100 or H200: six times its parameters and tokens, and attention. Another card is
  // assumed to reach as large a part of its sheet.
  double tflops;
  bool decoder = true;
  double parameters() const { return layers * 12 * width * width + vocabulary * width; }
  double flop() const { return 6 * parameters() * tokens + 6 * layers * width * length * tokens; }
  double seconds(const Card& card) const { return flop() / (tflops * 1e12 * card.beside_h100()); }
  double activations() const { return 34 * width * layers * tokens; }  // bytes
  double logits() const { return 6 * vocabulary * tokens; }
  double optimizer() const { return 12 * parameters(); }
  double always() const { return 4 * parameters(); }  // weights and gradients
  double peak() const { return activations() + logits() + optimizer() + always(); }
};

// ResNet-50 for images of 224 x 224 (gpu_convolutions.cc): a convolution is one op, batch norm and its ReLU another.
struct ResNet {
  const char* name;
  double images;
  double images_per_s;  // assumed, as above
  double seconds(const Card& card) const { return images / (images_per_s * card.beside_h100()); }
};

std::span<const Transformer> transformers();
std::span<const Transformer> short_steps();  // of few tokens, where an update takes the most of them
std::span<const ResNet> residual_networks();

// `can_recompute`: of the forward ops; they have the same bits when they run twice.
Trace step_of(const Transformer& model, const Card& card, bool can_recompute);
Trace step_of(const ResNet& model, const Card& card, bool can_recompute);

struct Fluid {  // of a step; bytes
  double seconds = 0, peak = 0, activations = 0, optimizer = 0;
  double cheap_part = 0, cheap_time = 0;  // of the activations, and of a forward to recompute them: norms and the like
  double kept = 0;                        // of the other activations: the inputs of what is recomputed as a whole
};
Fluid fluid_of(const Transformer& model, const Card& card);
Fluid fluid_of(const ResNet& model, const Card& card);

struct Rates {  // of links; bytes a second
  double in = 0, out = 0, together = 0;
};

// The share of plain speed that such links allow at a share of the peak, as a fluid. Activations leave during the
// forward and come back during the backward, and the optimizer's state streams through the backward. With `recomputes`
// part of the activations is recomputed. 0: it does not fit.
double fluid_bound(const Fluid& model, double share, const Rates& rates, bool recomputes);

// Seconds of a step, with all memory, whose AdamW the processor computes beside the backward, in the order in which
// gradients are complete. Each gradient goes out, the processor reads and writes 28 bytes a parameter, and the weight
// comes in.
// The next step waits for all of them. Its bits are others.
double seconds_with_update_on_host(const Transformer& model, const Card& card, const Rates& links,
                                   double processor_bytes_per_s);

}  // namespace vedette::bench
