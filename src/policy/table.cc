// The one list of policies: the command line, the tests and the benches walk it. A new policy is a file, a maker, and a line
// here.
#include <array>

#include "policy/makers.h"

namespace vedette {
namespace {

constexpr std::array table{
    PolicyEntry{"on-demand", "no paper: least recently used", "fetches when an op waits, evicts what was used longest ago",
                make_on_demand},
    PolicyEntry{"unified-memory", "CUDA unified memory as in G10, MICRO'23", "faults block by block, least recently used; the dead are kept and written out",
                make_unified_memory},
    PolicyEntry{"flashneuron", "FlashNeuron, FAST'21", "activations to the furthest tier, from the first on, until the rest fits",
                make_flashneuron, "which tensors compress (CSR, FP16)"},
    PolicyEntry{"flashneuron+", "FlashNeuron as in G10's artifact", "the same activations in a two-ended arena without gaps between a tensor's bytes",
                make_flashneuron_of_g10, "which tensors compress (CSR, FP16)"},
    PolicyEntry{"g10", "G10, MICRO'23", "periods of most bytes x time over the line first, under the bandwidth already given away", make_g10},
    PolicyEntry{"g10+", "G10 as in its artifact", "the same periods, carried out by a driver that pages and evicts the least recently used", make_g10_of_artifact},
    PolicyEntry{"deepum", "DeepUM, ASPLOS'23", "learns which blocks fault after which, fetches along the chain 32 launches ahead",
                make_deepum},
    PolicyEntry{"deepum+", "DeepUM as in G10's artifact", "fetches what the op 8 ahead needs, evicts the least recently used",
                make_unified_memory_ahead},
    PolicyEntry{"vdnn-all", "vDNN, MICRO'16", "offloads every layer's input after forward, fetches a layer ahead in backward",
                make_vdnn_all, "the choice of cuDNN algorithms"},
    PolicyEntry{"vdnn-conv", "vDNN, MICRO'16", "offloads the inputs of convolutions only",
                make_vdnn_conv, "the choice of cuDNN algorithms"},
    PolicyEntry{"vdnn-dyn", "vDNN, MICRO'16", "nothing, conv or all: the first that fits",
                make_vdnn_dyn, "the choice of cuDNN algorithms"},
    PolicyEntry{"superneurons", "SuperNeurons, PPoPP'18", "recomputes between checkpoints, offloads checkpoints, a tensor cache before both",
                make_superneurons, "convolution algorithms by the workspace that is left"},
    PolicyEntry{"capuchin", "Capuchin, ASPLOS'20", "swaps by free time, recomputes by bytes saved a second where swaps show",
                make_capuchin},
    PolicyEntry{"autoswap-doa", "AutoSwap, arXiv 1903.06631", "across each peak, the longest absence first",
                make_autoswap_doa},
    PolicyEntry{"autoswap-aoa", "AutoSwap, arXiv 1903.06631", "the largest bytes x absence first",
                make_autoswap_aoa},
    PolicyEntry{"autoswap-wdoa", "AutoSwap, arXiv 1903.06631", "the most load over the limit while away first",
                make_autoswap_wdoa},
    PolicyEntry{"autoswap-swdoa", "AutoSwap, arXiv 1903.06631", "as wdoa, on the load that is left after each choice",
                make_autoswap_swdoa},
    PolicyEntry{"autoswap-vote", "AutoSwap, arXiv 1903.06631", "the sum of ranks by doa, aoa and wdoa",
                make_autoswap_vote},
    PolicyEntry{"oc-dnn", "OC-DNN, HiPC'18", "fetches the next layer's tensors while a layer runs",
                make_ocdnn},
    PolicyEntry{"lms", "IBM LMS v3, 2019", "on failed allocations one large enough or all, paged out speculatively later; no fetch ahead",
                make_lms},
    PolicyEntry{"tflms", "TFLMS, arXiv 1807.02037", "activations with far consumers, fetched some ops ahead, tuned by simulation",
                make_tflms},
    PolicyEntry{"dragon", "DRAGON, SC'18", "faults from the furthest tier with read-ahead, evicts the least recently used",
                make_dragon},
    PolicyEntry{"zero-infinity", "ZeRO-Infinity, SC'21", "parameters and optimizer states only, gathered a bucket ahead",
                make_zero_infinity, "activation checkpointing and tiling"},
    PolicyEntry{"belady", "Belady, IBM Systems Journal 1966", "who is used again last leaves first, fetches in order of next use",
                make_belady, "", true},
    PolicyEntry{"swapadvisor", "SwapAdvisor, ASPLOS'20", "a genetic search over size classes; furthest next use leaves within each",
                make_swapadvisor, "orders of ops other than the traced one"},
    PolicyEntry{"dtr", "DTR, ICLR'21", "drops what is cheap to make again, large and stale; nothing moves",
                make_dtr},
    PolicyEntry{"autotm", "AutoTM, ASPLOS'20", "an integer linear program over moves at most 15 ops from a tensor's users",
                make_autotm, "op times for each placement and algorithm"},
    PolicyEntry{"sentinel", "Sentinel, HPCA'21", "intervals of layers, fetched one ahead; short-lived tensors never move",
                make_sentinel},
    PolicyEntry{"vedette", "no paper: our own",
                "Belady over one step against a model of both links, then repaired by what was measured", make_vedette},
};

}  // namespace

std::span<const PolicyEntry> policies() noexcept { return table; }

std::unique_ptr<Policy> make_policy(std::string_view name, std::uint64_t seed) {
  for (const PolicyEntry& entry : table) {
    if (entry.name == name) return entry.make(seed);
  }
  return nullptr;
}

}  // namespace vedette
