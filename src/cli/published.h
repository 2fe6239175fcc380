// Published figures of systems, in percent of the speed with all memory, and the traces here that can be held against
// them. docs/reproduce.md explains; `vedette reproduce policies` puts our figure beside each.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace vedette::cli {

struct PublishedFigure {
  std::string_view system, says;  // the paper's figure, in words
  std::string_view source;        // where it was read
  std::string_view policy;        // ours of that system; empty: nothing to run
  std::string_view machine;       // the preset that is nearest to the paper's
  double share = 0;               // of the step's peak: the size at which the paper gives the figure
  std::string_view apart;         // why ours is not the same experiment; empty: it is
  bool order = false;             // ops run in the order that the policy finds

  std::string machine_name() const { return std::string(machine) + (order ? "+order" : ""); }
};

inline constexpr std::string_view other_networks = "the paper's networks are not among the traces";

inline constexpr std::array published_figures{
    PublishedFigure{.system = "Sentinel",
                    .says = "92 % or more: at most 8 % slower with 20 % of the peak",
                    .source = "abstract of arXiv 1909.05182v1",
                    .policy = "sentinel",
                    .machine = "optane-sentinel",
                    .share = 0.20,
                    .apart = other_networks},
    PublishedFigure{.system = "AutoTM",
                    .says = "72.3 % (geometric mean) with 20 to 50 % of the memory in DRAM",
                    .source = "abstract, ASPLOS'20, and the README of darchr/AutoTM",
                    .policy = "autotm",
                    .machine = "optane-sentinel",
                    .share = 0.35,
                    .apart = "the paper's networks are not among the traces, and its range is played at its middle"},
    PublishedFigure{.system = "vDNN",
                    .says = "82 %: VGG-16 with batches of 256, 28 GB on 12 GB",
                    .source = "abstract of arXiv 1602.08124",
                    .policy = "vdnn-dyn",
                    .machine = "v100-pcie3",
                    .share = 12.0 / 28.0,
                    .apart = "there is no trace of VGG-16"},
    PublishedFigure{.system = "SwapAdvisor",
                    .says = "53 to 99 % with up to 12 times the GPU's memory",
                    .source = "as quoted by later papers; the text was not at hand",
                    .policy = "swapadvisor",
                    .machine = "v100-pcie3",
                    .share = 0.25,
                    .apart = "the paper's networks are not among the traces; most ops here need more than a twelfth of "
                             "the peak at once, so a quarter is played",
                    .order = true},
    PublishedFigure{.system = "Capuchin",
                    .says = "up to 286 % faster than vDNN with the same memory",
                    .source = "abstract, ASPLOS'20",
                    .policy = "capuchin",
                    .machine = "v100-pcie3",
                    .share = 12.0 / 28.0,
                    .apart = "a ratio of two systems on networks that are not among the traces; vDNN's row has the "
                             "same size"},
    PublishedFigure{.system = "DTR",
                    .says = "no percentage in its abstract; its own logs are the traces dtr/*",
                    .source = "uwsampl/dtr-prototype, ICLR'21",
                    .policy = "dtr",
                    .machine = "v100-pcie3",
                    .share = 0.50,
                    .apart = "no figure of its text was at hand"},
    PublishedFigure{.system = "DeepUM",
                    .says = "no percentage in its abstract",
                    .source = "abstract, ASPLOS'23",
                    .policy = "deepum",
                    .machine = "v100-pcie3",
                    .share = 0.50,
                    .apart = "no figure of its text was at hand; what G10's artifact plays under its name stands in "
                             "the table of `vedette reproduce g10`, on the same traces"},
};

}  // namespace vedette::cli
