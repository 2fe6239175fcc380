// libCacheSim's oracleGeneral: 24 packed bytes a request, little endian: u32 clock time, u64 object, u32 size, i64
// number of the request that comes to the object next (-1: none) (libCacheSim,
// traceReader/customizedReader/oracle/oracleGeneralBin.h). Its clock is the op.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/readable.h"
#include "model/liveness.h"
#include "profiler/export_parts.h"

namespace vedette {

namespace {

// The accesses of a trace's ops, as bytes [begin, end) of a tensor.
struct Touch {
  std::uint32_t op = 0, tensor = 0;
  std::uint64_t begin = 0, end = 0;
  auto operator<=>(const Touch&) const = default;
};

std::vector<Touch> touches_of(const Trace& trace) {
  std::vector<Touch> touches;
  const std::uint64_t page = trace.page_bytes.value;
  for (const PageAccess& a : trace.pages) {
    const std::uint64_t bytes = trace.tensors[a.tensor.value].bytes.value;
    touches.push_back({a.op.value, a.tensor.value, a.pages.begin * page, std::min(a.pages.end * page, bytes)});
  }
  if (!trace.pages.empty()) return touches;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    for (const TensorIndex t : operands(trace.ops[i]))
      touches.push_back({i, t.value, 0, trace.tensors[t.value].bytes.value});
  return touches;
}

std::vector<std::uint64_t> next_requests(std::span<const std::uint64_t> requests) {
  std::vector<std::uint64_t> next(requests.size());
  std::unordered_map<std::uint64_t, std::uint64_t> later;
  for (std::size_t i = requests.size(); i-- > 0;) {
    const auto found = later.find(requests[i]);
    next[i] = found == later.end() ? ~std::uint64_t{0} : found->second;
    later[requests[i]] = i;
  }
  return next;
}

// Of each tensor. Those without a place lie above the others: what persists one behind the other, the rest in the
// lowest hole while they live, first fit by birth.
std::vector<std::uint64_t> addresses_of(const Trace& trace, std::span<const std::optional<std::uint64_t>> places) {
  std::vector<std::uint64_t> address(trace.tensors.size());
  std::uint64_t top = 0;
  const auto bytes = [&](std::uint32_t t) { return trace.tensors[t].bytes.value; };
  const auto placed = [&](std::uint32_t t) { return t < places.size() && places[t].has_value(); };
  for (std::uint32_t t = 0; t < address.size(); ++t)
    if (placed(t)) top = std::max(top, (address[t] = *places[t]) + bytes(t));
  std::vector<std::uint32_t> by_birth;
  for (std::uint32_t t = 0; t < address.size(); ++t) {
    if (placed(t)) continue;
    if (trace.tensors[t].persistent)
      address[t] = std::exchange(top, top + bytes(t));
    else
      by_birth.push_back(t);
  }
  const std::vector<Span<OpIndex>> life = lives(trace);
  std::stable_sort(by_birth.begin(), by_birth.end(), [&](auto a, auto b) { return life[a].begin < life[b].begin; });
  std::map<std::uint64_t, std::uint64_t> held;  // by begin: the end
  using Ends = std::pair<OpIndex, std::uint64_t>;
  std::priority_queue<Ends, std::vector<Ends>, std::greater<>> ends;
  for (const std::uint32_t t : by_birth) {
    for (; !ends.empty() && ends.top().first <= life[t].begin; ends.pop()) held.erase(ends.top().second);
    std::uint64_t at = top;
    for (const auto& [begin, end] : held) {
      if (begin - at >= bytes(t)) break;
      at = end;
    }
    address[t] = at;
    held[at] = at + bytes(t);
    ends.emplace(life[t].end, at);
  }
  return address;
}

// By object: how many of its bytes are a tensor's at some time.
std::map<std::uint64_t, std::uint32_t> sizes_of(const Trace& trace, const std::vector<std::uint64_t>& address,
                                                std::uint64_t object) {
  std::vector<Span<std::uint64_t>> tensors;
  for (std::size_t t = 0; t < address.size(); ++t)
    tensors.push_back({address[t], address[t] + trace.tensors[t].bytes.value});
  std::sort(tensors.begin(), tensors.end());
  std::map<std::uint64_t, std::uint32_t> sizes;
  std::uint64_t covered = 0;  // up to here
  for (const auto& [begin, end] : tensors) {
    for (std::uint64_t at = std::max(begin, covered); at < end;) {
      const std::uint64_t stop = std::min(end, (at / object + 1) * object);
      sizes[at / object] += static_cast<std::uint32_t>(stop - at);
      at = stop;
    }
    covered = std::max(covered, end);
  }
  return sizes;
}

}  // namespace

Requests requests_of(const Trace& trace, Bytes object, std::span<const std::optional<std::uint64_t>> places) {
  const std::uint64_t size = std::max<std::uint64_t>(object.value, 1);
  const std::vector<std::uint64_t> address = addresses_of(trace, places);
  const std::map<std::uint64_t, std::uint32_t> sizes = sizes_of(trace, address, size);
  std::unordered_map<std::uint64_t, std::uint32_t> last_op;  // that requested the object
  std::vector<Touch> touches = touches_of(trace);
  std::sort(touches.begin(), touches.end());
  Requests requests;
  for (const Touch& t : touches) {
    if (t.begin >= t.end) continue;
    for (std::uint64_t k = (address[t.tensor] + t.begin) / size; k <= (address[t.tensor] + t.end - 1) / size; ++k) {
      const auto [found, fresh] = last_op.try_emplace(k, t.op);
      if (!fresh && std::exchange(found->second, t.op) == t.op) continue;
      requests.object.push_back(k);
      requests.op.push_back(t.op);
      requests.bytes.push_back(sizes.at(k));
    }
  }
  return requests;
}

namespace exports {

namespace {

template <class Integer>
void little_endian(Integer value, std::ostream& out) {
  auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (std::size_t i = 0; i < sizeof value; ++i, bits = static_cast<decltype(bits)>(bits >> 4 >> 4))
    out.put(static_cast<char>(bits & 0xff));
}

}  // namespace

Result<void> to_oracle_general(const ExportSource& source, std::ostream& out) {
  // all of 32 bits; 400 MB of requests
  constexpr std::uint64_t largest = ~std::uint32_t{0}, most = std::uint64_t{1} << 24;
  const std::uint64_t size = source.options.object.value;
  if (size == 0 || size > largest)
    return Error{Cause::unsupported,
                 "objects of " + readable_exactly({size}) + ": the format has 32 bits for their size, and 0 is none"};
  const auto profile = profile_of(source.run);
  if (!profile) return profile.error();
  std::uint64_t count = 0;
  for (const Tensor& t : (*profile)->trace.tensors) count += t.bytes.value / size;
  for (const Touch& t : touches_of((*profile)->trace)) count += (t.end - t.begin) / size + 2;
  if (count > most)
    return Error{Cause::unsupported,
                 "the step has more than " + std::to_string(most) + " requests; choose larger objects"};
  const Requests requests = requests_of((*profile)->trace, source.options.object, (*profile)->places);
  const std::vector<std::uint64_t> next = next_requests(requests.object);
  for (std::size_t i = 0; i < requests.object.size(); ++i) {
    little_endian(requests.op[i], out);
    little_endian(requests.object[i], out);
    little_endian(requests.bytes[i], out);
    little_endian(static_cast<std::int64_t>(next[i]), out);
  }
  return {};
}

}  // namespace exports
}  // namespace vedette
