// Data sheets, and rooflines: see cards.h.
#include "sim/cards.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace vedette {
namespace {

constexpr double giga = 1e9, tera = 1e12;
constexpr double pcie4 = 25 * giga;  // each way, of 31.5 (nvbandwidth's reports)
constexpr double pcie5 = 50 * giga;  // each way at once, measured on an H200 (docs/gpu-facts.md)

constexpr Bytes gb(std::uint64_t number) { return {number * 1'000'000'000}; }

constexpr std::array all_cards{
    Card{"rtx4090", "NVIDIA Ada architecture paper", 24_GiB, 1008 * giga, 82.6 * tera, 82.6 * tera, 165.2 * tera, pcie4,
         pcie4},
    Card{"a100-40gb", "NVIDIA A100 data sheet, SXM", gb(40), 1555 * giga, 19.5 * tera, 156 * tera, 312 * tera, pcie4,
         pcie4},
    Card{"a100-80gb", "NVIDIA A100 data sheet, SXM", gb(80), 2039 * giga, 19.5 * tera, 156 * tera, 312 * tera, pcie4,
         pcie4},
    Card{"l40s", "NVIDIA L40S data sheet", gb(48), 864 * giga, 91.6 * tera, 183 * tera, 362 * tera, pcie4, pcie4},
    Card{"h100", "NVIDIA H100 data sheet, SXM", gb(80), 3350 * giga, 67 * tera, 494.5 * tera, 989 * tera, pcie5, pcie5},
    Card{"h100-pcie5", "NVIDIA H100 data sheet, PCIe", gb(80), 2000 * giga, 51 * tera, 378 * tera, 756 * tera, pcie5,
         pcie5},
    Card{"h200", "NVIDIA H200 data sheet, SXM", gb(141), 4800 * giga, 67 * tera, 494.5 * tera, 989 * tera, pcie5,
         pcie5},
    Card{"b200", "NVIDIA HGX B200 data sheet, a GPU of eight", gb(180), 7700 * giga, 75 * tera, 1100 * tera,
         2250 * tera, pcie5, pcie5},
    Card{"gh200", "NVIDIA GH200 data sheet; copies as nvbandwidth reports them", gb(96), 4000 * giga, 67 * tera,
         494.5 * tera, 989 * tera, 411 * giga, 170 * giga, 486 * giga},
    Card{"gb200", "NVIDIA GB200 data sheet, a GPU of two; copies as torchtitan#3489 has them", gb(186), 8000 * giga,
         80 * tera, 1250 * tera, 2500 * tera, 350 * giga, 350 * giga, 368 * giga},
    Card{"mi300x", "AMD MI300X data sheet; no guard runs there", gb(192), 5300 * giga, 163.4 * tera, 653.7 * tera,
         1307.4 * tera, pcie5, pcie5},
};

double elements(const Tensor& tensor) {
  constexpr double bytes_of_float = 4;
  if (tensor.shape.empty()) return static_cast<double>(tensor.bytes.value) / bytes_of_float;
  double product = 1;
  for (const std::int64_t size : tensor.shape) product *= static_cast<double>(size);
  return product;
}

bool is_half(const Tensor& tensor) {
  return !tensor.shape.empty() && static_cast<double>(tensor.bytes.value) < 3 * elements(tensor);
}

bool has(const std::string& name, std::string_view part) { return name.find(part) != name.npos; }

struct Operands {
  std::vector<const Tensor*> reads, writes;  // the largest first
};

Operands operands_of(const Trace& trace, const Op& op) {
  Operands found;
  for (const TensorIndex t : op.reads) found.reads.push_back(&trace.tensors[t.value]);
  for (const TensorIndex t : op.writes) found.writes.push_back(&trace.tensors[t.value]);
  for (auto* const list : {&found.reads, &found.writes})
    std::stable_sort(list->begin(), list->end(),
                     [](const Tensor* a, const Tensor* b) { return elements(*a) > elements(*b); });
  return found;
}

// Matrices of m x k, k x n and m x n: the root of the product of their numbers of elements is m n k. Of a batch the
// numbers are those of all its matrices.
double of_product(const Operands& operands, bool batched) {
  if (operands.reads.size() < 2 || operands.writes.empty()) return 0;
  const Tensor& out = *operands.writes[0];
  const double batch = batched && out.shape.size() > 2 ? static_cast<double>(out.shape[0]) : 1;
  return 2 * std::sqrt(elements(*operands.reads[0]) * elements(*operands.reads[1]) * elements(out) / batch);
}

// Of the weight O x C x ... each of the elements of O meets each element of the output's channel.
double of_convolution(const Operands& operands, bool backward) {
  const auto weight = std::find_if(operands.reads.begin(), operands.reads.end(), [](const Tensor* t) {
    return t->shape.size() >= 3 && t->shape.size() <= 5 && (t->kind == TensorKind::weight || t->persistent);
  });
  if (weight == operands.reads.end()) return of_product(operands, false) * (backward ? 2 : 1);
  const std::int64_t channels = (*weight)->shape[0];
  const double each = elements(**weight) / static_cast<double>(std::max<std::int64_t>(1, channels));
  for (const Tensor* const tensor : backward ? operands.reads : operands.writes)
    if (tensor != *weight && tensor->shape.size() == (*weight)->shape.size() && tensor->shape[1] == channels)
      return 2 * elements(*tensor) * each * (backward ? 2 : 1);
  return 0;
}

double of_attention(const Operands& operands, bool backward) {
  if (operands.reads.empty()) return 0;
  const Tensor& query = *operands.reads[0];
  const double length =
      query.shape.size() >= 3 ? static_cast<double>(query.shape[query.shape.size() - 2]) : std::sqrt(elements(query));
  return 4 * elements(query) * length * (backward ? 2.5 : 1);
}

}  // namespace

std::span<const Card> cards() noexcept { return all_cards; }

const Card* card_named(std::string_view name) noexcept {
  const auto found = std::find_if(all_cards.begin(), all_cards.end(), [&](const Card& c) { return c.name == name; });
  return found == all_cards.end() ? nullptr : &*found;
}

Machine machine_of(const Card& card, Bytes host) {
  constexpr Nanoseconds latency{10'000};  // of an H200's copies (docs/gpu-facts.md)
  Machine machine;
  machine.tiers = {{.name = "gpu", .capacity = card.memory}, {.name = "host", .capacity = host}};
  machine.links = {
      {.source = {1}, .target = {0}, .bytes_per_s = static_cast<std::uint64_t>(card.link_in), .latency = latency},
      {.source = {0}, .target = {1}, .bytes_per_s = static_cast<std::uint64_t>(card.link_out), .latency = latency}};
  machine.granule = {512};
  machine.whole_tensors = true;
  machine.interference_percent = 0;
  machine.host_memory = {.tier = {1}, .bytes_per_s = static_cast<std::uint64_t>(card.host_memory)};
  return machine;
}

double arithmetic_of(const Trace& trace, const Op& op) {
  const bool backward = has(op.name, "backward");
  const Operands operands = operands_of(trace, op);
  if (has(op.name, "attention")) return of_attention(operands, backward);
  if (has(op.name, "convolution") || has(op.name, "conv2d")) return of_convolution(operands, backward);
  for (const std::string_view product : {"bmm", "addmm", "mm", "linear", "matmul"})
    if (has(op.name, product)) return of_product(operands, has(op.name, "bmm")) * (backward ? 2 : 1);
  return 0;
}

Trace on_card(Trace trace, const Card& card, Estimate estimate) {
  const bool fast = estimate == Estimate::fast;
  const double arithmetic = fast ? 0.8 : 0.4, bandwidth = fast ? 0.9 : 0.6, least = fast ? 2e-6 : 10e-6;  // seconds
  for (Op& op : trace.ops) {
    double bytes = static_cast<double>(op.workspace.value);
    bool half = false;
    for (const auto* const list : {&op.reads, &op.writes})
      for (const TensorIndex t : *list) {
        bytes += static_cast<double>(trace.tensors[t.value].bytes.value);
        half = half || is_half(trace.tensors[t.value]);
      }
    const double speed = half ? card.half : fast ? card.tensor_float32 : card.float32;
    const double seconds = std::max(
        {arithmetic_of(trace, op) / (speed * arithmetic), bytes / (card.memory_bytes_per_s * bandwidth), least});
    op.time = {static_cast<std::int64_t>(seconds * 1e9)};
  }
  trace.device = std::string(card.name) + ", by its roofline";
  return trace;
}

Trace on_card(const Trace& trace, const Card& card, Nanoseconds step) {
  const Trace slow = on_card(trace, card, Estimate::slow), fast = on_card(trace, card, Estimate::fast);
  std::vector<double> times(trace.ops.size());
  const auto mixed = [&](double part) {
    double all = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto a = static_cast<double>(slow.ops[i].time.value), b = static_cast<double>(fast.ops[i].time.value);
      all += times[i] = a * std::pow(b / a, part);
    }
    return all;
  };
  const auto wanted = static_cast<double>(step.value);
  double low = 0, high = 1;
  for (int round = 0; round < 50; ++round) (mixed((low + high) / 2) > wanted ? low : high) = (low + high) / 2;
  const double scale = wanted / mixed((low + high) / 2);
  Trace known = slow;
  for (std::size_t i = 0; i < times.size(); ++i)
    known.ops[i].time = {std::max<std::int64_t>(1, std::llround(times[i] * scale))};
  return known;
}

}  // namespace vedette
