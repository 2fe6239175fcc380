// Published figures of systems, in percent of the speed with all memory, and the traces here that can be held against
// them. docs/reproduce.md explains; `vedette reproduce policies` puts our figure beside each.
#pragma once
#include <span>
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
std::span<const PublishedFigure> published_figures() noexcept;

}  // namespace vedette::cli
