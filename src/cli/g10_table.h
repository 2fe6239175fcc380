// G10's published table, replayed: its rows as docs/g10.md has them. `vedette reproduce g10` and the test of the table
// are made of this.
//
// Pure: the same traces and the same published figures give the same rows, byte for byte. Thread rule: any thread.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/machine.h"
#include "vedette/model.h"

namespace vedette::cli {

struct G10System {
  std::string_view published, ours, title;
  // workspaces are tensors, inputs are born at their first use; FlashNeuron keeps room for the largest workspace
  // instead
  bool as_in_artifact;
};
constexpr std::array g10_systems{G10System{"lru", "unified-memory", "unified memory", true},
                                 G10System{"FlashNeuron", "flashneuron+", "FlashNeuron", false},
                                 G10System{"deepUM", "deepum+", "DeepUM+", true},
                                 G10System{"prefetch_lru", "g10+", "G10", true}};
constexpr double g10_unsupported = -1;

struct G10Cell {
  double theirs = g10_unsupported, ours = g10_unsupported;  // percent of ideal
};
struct G10Network {
  std::string model;
  int batch = 0;
  std::array<G10Cell, g10_systems.size()> cells = {};
  double vedette = g10_unsupported;
  std::string name() const { return model + "-" + std::to_string(batch); }
};

// Of the models whose traces are given, in the order of the page. `csv` has the columns model, batch, system,
// percent_of_ideal and more.
std::vector<G10Network> g10_published(const std::string& csv);

// Workspaces have addresses. A tensor that no op writes, and that is no parameter, is born at its first use; the given
// traces keep it through the step.
Trace as_in_g10_artifact(const Trace& given);

// The factor that the artifact's authors set by hand for one network and batch size, else 1. In src/ast.cc,
// transformer_parse, `if (borden>200 && batch_size ==512 && SSD_PCIe_bandwidth_GBps < 6.3) loosen_parameter = 1.394;`
// where only BERT has a borden over 200. Its scheduler takes periods until memory is below 1.394 x 0.99 of the GPU's.
double g10_line_by_hand(std::string_view model, int batch, std::string_view system);

// Of ideal; g10_unsupported where the policy cannot run the trace.
double g10_percent(const Trace& trace, const Machine& machine, std::string_view policy, double loosened = 1);

bool g10_agree(const G10Cell& cell, double points);
bool g10_same_order(const G10Network& network);  // ties within half a point may come out either way
std::string g10_words(double percent);           // "53.8", "fails"

// "| bert_base-128 | 53.8 / 53.8 | ... | 100.0 |" as the page has it, marks included.
std::string g10_row(const G10Network& network);
// The whole table: heading, and a row a network, each line with its end.
std::string g10_markdown(std::span<const G10Network> networks);

}  // namespace vedette::cli
