// The shortest edit script between two sequences of ops, and bytes by layer: see profile_match.h.
#include "support/profile_match.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace vedette {
namespace {

using Reach = std::vector<std::ptrdiff_t>;  // of each diagonal, the furthest x

std::size_t slot_of(std::ptrdiff_t diagonal, std::ptrdiff_t differences) {
  return static_cast<std::size_t>(diagonal + differences);
}

// The furthest points of 0, 1, 2 ... differences, until both ends are reached. Element d has 2 d + 1 diagonals.
std::vector<Reach> furthest_points(const std::vector<Op>& one, const std::vector<Op>& other) {
  const auto n = static_cast<std::ptrdiff_t>(one.size()), m = static_cast<std::ptrdiff_t>(other.size());
  std::vector<Reach> all;
  for (std::ptrdiff_t d = 0;; ++d) {
    Reach reach(static_cast<std::size_t>(2 * d + 1), -1);
    for (std::ptrdiff_t k = -d; k <= d; k += 2) {
      std::ptrdiff_t x = 0;
      if (d > 0) {
        const Reach& before = all.back();
        const auto of = [&](std::ptrdiff_t diagonal) {
          return diagonal < 1 - d || diagonal > d - 1 ? std::ptrdiff_t{-1} : before[slot_of(diagonal, d - 1)];
        };
        x = k == -d || (k != d && of(k - 1) < of(k + 1)) ? of(k + 1) : of(k - 1) + 1;
      }
      std::ptrdiff_t y = x - k;
      while (x < n && y < m && y >= 0 && x >= 0 &&
             one[static_cast<std::size_t>(x)].name == other[static_cast<std::size_t>(y)].name)
        ++x, ++y;
      reach[slot_of(k, d)] = x;
      if (x >= n && y >= m) {
        all.push_back(std::move(reach));
        return all;
      }
    }
    all.push_back(std::move(reach));
  }
}

std::vector<std::pair<OpIndex, OpIndex>> matched(const std::vector<Op>& one, const std::vector<Op>& other) {
  const std::vector<Reach> all = furthest_points(one, other);
  auto x = static_cast<std::ptrdiff_t>(one.size()), y = static_cast<std::ptrdiff_t>(other.size());
  std::vector<std::pair<OpIndex, OpIndex>> pairs;
  const auto back_to = [&](std::ptrdiff_t begin_x, std::ptrdiff_t begin_y) {
    for (; x > begin_x && y > begin_y; --x, --y)
      pairs.push_back({{static_cast<std::uint32_t>(x - 1)}, {static_cast<std::uint32_t>(y - 1)}});
  };
  for (auto d = static_cast<std::ptrdiff_t>(all.size()) - 1; d > 0; --d) {
    const Reach& before = all[static_cast<std::size_t>(d - 1)];
    const std::ptrdiff_t k = x - y;
    const auto of = [&](std::ptrdiff_t diagonal) {
      return diagonal < 1 - d || diagonal > d - 1 ? std::ptrdiff_t{-1} : before[slot_of(diagonal, d - 1)];
    };
    const bool down = k == -d || (k != d && of(k - 1) < of(k + 1));  // an op that `other` alone has
    const std::ptrdiff_t from = down ? k + 1 : k - 1, from_x = of(from);
    back_to(down ? from_x : from_x + 1, down ? from_x - from + 1 : from_x - from);
    x = from_x;
    y = from_x - from;
  }
  back_to(0, 0);
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

std::vector<Bytes> bytes_by_pages(const Trace& trace, Bytes least) {
  std::vector<Bytes> bytes(trace.ops.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> touched;  // bytes, by op and tensor
  for (const PageAccess& access : trace.pages) {
    const Tensor& tensor = trace.tensors[access.tensor.value];
    if (tensor.bytes < least) continue;
    const std::uint64_t begin = access.pages.begin * trace.page_bytes.value,
                        end = std::min(access.pages.end * trace.page_bytes.value, tensor.bytes.value);
    touched[{access.op.value, access.tensor.value}] += end > begin ? end - begin : 0;
  }
  for (const auto& [where, count] : touched) bytes[where.first] += Bytes{count};
  return bytes;
}

Bytes bytes_of_operands(const Trace& trace, const Op& op, Bytes least) {
  Bytes bytes;
  std::vector<TensorIndex> operands = op.reads;
  operands.insert(operands.end(), op.writes.begin(), op.writes.end());
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  for (const TensorIndex tensor : operands)
    if (trace.tensors[tensor.value].bytes >= least) bytes += trace.tensors[tensor.value].bytes;
  return bytes;
}

}  // namespace

ProfileMatch match_profiles(const Trace& pages, const Trace& operands, Bytes least) {
  ProfileMatch found{.ops = matched(pages.ops, operands.ops)};
  const std::vector<Bytes> by_pages = bytes_by_pages(pages, least);
  std::uint32_t one = 0, other = 0;
  const auto pass = [&](std::uint32_t until_one, std::uint32_t until_other) {
    for (; one < until_one; ++one) found.only_in_pages.push_back({one});
    for (; other < until_other; ++other) found.only_in_operands.push_back({other});
  };
  for (const auto& [of_pages, of_operands] : found.ops) {
    pass(of_pages.value, of_operands.value);
    ++one, ++other;
    const Op& op = pages.ops[of_pages.value];
    const std::string name = op.layer ? pages.layers[op.layer->value].name : std::string();
    auto layer = std::find_if(found.layers.begin(), found.layers.end(),
                              [&](const LayerMatch& each) { return each.layer == name && each.phase == op.phase; });
    if (layer == found.layers.end()) {
      found.layers.push_back({.layer = name, .phase = op.phase, .ops = 0});
      layer = std::prev(found.layers.end());
    }
    ++layer->ops;
    layer->by_pages += by_pages[of_pages.value];
    layer->by_operands += bytes_of_operands(operands, operands.ops[of_operands.value], least);
  }
  pass(static_cast<std::uint32_t>(pages.ops.size()), static_cast<std::uint32_t>(operands.ops.size()));
  return found;
}

}  // namespace vedette
