// Sizes that follow from two others: see like_log.h.
#include "session/like_log.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>

#include "base/readable.h"
#include "session/step_logger.h"

namespace vedette::detail {
namespace {

// Sizes as functions of one, known at three points.
struct Growth {
  double one = 0, other = 0, now = 0;

  std::optional<Bytes> of(Bytes in_one, Bytes in_other) const {
    if (in_one == in_other) return in_one;
    const auto a = double(in_one.value), b = double(in_other.value);
    constexpr double same = 1e-9;
    const bool squared = std::abs(a / b - (one / other) * (one / other)) < same * a / b;
    const double bytes = squared ? a * (now / one) * (now / one) : a + (b - a) * (now - one) / (other - one);
    if (bytes < 1 || std::abs(bytes - std::round(bytes)) > 1e-3) return std::nullopt;
    return Bytes{static_cast<std::uint64_t>(std::llround(bytes))};
  }
  Nanoseconds of(Nanoseconds in_one, Nanoseconds in_other) const {
    const double at = (now - one) / (other - one);
    const double time = double(in_one.value) + double(in_other.value - in_one.value) * at;
    return {std::llround(std::max(time, 1.0))};
  }
};

bool same_but_for_sizes(const LoggedTensor& a, const LoggedTensor& b) {
  return a.birth == b.birth && a.death == b.death && a.birth_op == b.birth_op && a.death_op == b.death_op;
}

bool same_operands(const OperandList& a, const OperandList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool same_but_for_sizes(const StepLog& one, const StepLog& other) {
  return std::equal(one.tensors.begin(), one.tensors.end(), other.tensors.begin(), other.tensors.end(),
                    [](const LoggedTensor& a, const LoggedTensor& b) { return same_but_for_sizes(a, b); }) &&
         std::equal(one.ops.begin(), one.ops.end(), other.ops.begin(), other.ops.end(),
                    [](const LoggedOp& a, const LoggedOp& b) {
                      return a.name == b.name && a.named_reads == b.named_reads && same_operands(a.reads, b.reads) &&
                             same_operands(a.writes, b.writes);
                    });
}

// As far as the running step has come, which is to the begin of its latest op.
bool begins_as(const StepLog& log, const StepLog& running) {
  if (running.ops.empty() || running.ops.size() > log.ops.size() || running.tensors.size() > log.tensors.size())
    return false;
  const std::uint32_t events = running.ops.back().events.begin;
  for (std::size_t t = 0; t < running.tensors.size(); ++t) {
    const LoggedTensor &now = running.tensors[t], &then = log.tensors[t];
    if (now.small || now.in_parts || now.birth != then.birth) return false;
    if (now.death != (then.death <= events ? then.death : ~0u)) return false;
  }
  for (std::size_t i = 0; i < running.ops.size(); ++i)
    if (running.ops[i].name != log.ops[i].name || running.ops[i].named_reads != log.ops[i].named_reads ||
        !same_operands(running.ops[i].reads, log.ops[i].reads) ||
        !same_operands(running.ops[i].writes, log.ops[i].writes))
      return false;
  return true;
}

std::optional<Growth> growth_of(const StepLog& one, const StepLog& other, const StepLog& running) {
  for (std::size_t t = 0; t < running.tensors.size(); ++t)
    if (one.tensors[t].bytes != other.tensors[t].bytes)
      return Growth{.one = double(one.tensors[t].bytes.value),
                    .other = double(other.tensors[t].bytes.value),
                    .now = double(running.tensors[t].bytes.value)};
  return std::nullopt;
}

// A tensor that outlives its step has the address that it had there, so its size may not have changed.
bool set_sizes(StepLog& log, const StepLog& other, const StepLog& running, const Growth& growth) {
  for (std::size_t t = 0; t < log.tensors.size(); ++t) {
    LoggedTensor& tensor = log.tensors[t];
    const Bytes before = tensor.bytes;
    const std::optional<Bytes> bytes = growth.of(before, other.tensors[t].bytes);
    if (!bytes) return false;
    const bool lives_on = tensor.birth > 0 && tensor.death == ~0u && !tensor.dies_at_seam;
    if (lives_on && *bytes != before) return false;
    if (t < running.tensors.size()) {
      if (running.tensors[t].bytes != *bytes) return false;
      tensor.offset = running.tensors[t].offset;
    }
    if (*bytes == before) continue;
    tensor.bytes = *bytes;
    tensor.shape.clear();
    if (tensor.birth > 0 && tensor.birth_op < log.ops.size())
      tensor.name = log.ops[tensor.birth_op].name + " " + readable(*bytes);
  }
  return true;
}

}  // namespace

bool can_be_foretold(const StepLog& log) {
  return log.pages.empty() && std::none_of(log.tensors.begin(), log.tensors.end(),
                                           [](const LoggedTensor& t) { return t.small || t.in_parts; });
}

ForetoldLog foretell(const SizedStep& one, const SizedStep& other, const StepLog& running) {
  if (!begins_as(*one.log, running)) return {.is = ForetoldLog::Is::another};
  if (running.tensors.size() > other.log->tensors.size()) return {.is = ForetoldLog::Is::another};
  const std::optional<Growth> growth = growth_of(*one.log, *other.log, running);
  if (!growth) return {.is = ForetoldLog::Is::not_yet};
  if (!same_but_for_sizes(*one.log, *other.log)) return {.is = ForetoldLog::Is::another};
  ForetoldLog foretold{.is = ForetoldLog::Is::known, .log = *one.log};
  if (!set_sizes(foretold.log, *other.log, running, *growth)) return {.is = ForetoldLog::Is::another};
  for (std::size_t i = 0; i < foretold.log.ops.size(); ++i)
    foretold.log.ops[i].time = growth->of(one.times[i], other.times[i]);
  return foretold;
}

std::vector<std::uint64_t> hashes_of(const StepLog& log) {
  std::vector<std::uint64_t> hashes;
  hashes.reserve(log.ops.size());
  for (const LoggedOp& op : log.ops) {
    std::uint64_t hash = std::hash<std::string_view>{}(op.name);
    for (const std::uint32_t t : op.reads) hash = mix(hash, log.tensors[t].bytes.value);
    hash = mix(hash, op.named_reads);
    for (const std::uint32_t t : op.writes) hash = mix(hash, log.tensors[t].bytes.value);
    hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace vedette::detail
