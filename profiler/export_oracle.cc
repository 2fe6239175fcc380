// libCacheSim's oracleGeneral: 24 packed bytes a request, little endian: u32 clock time, u64 object, u32 size, i64
// number of the request that comes to the object next (-1: none) (libCacheSim,
// traceReader/customizedReader/oracle/oracleGeneralBin.h). Its clock is the op.
//
// And the two counts to hold against it: LRU, and Belady's MIN with demand fetching (Belady 1966), where the victim is
// the block whose next request is last.
#include <algorithm>
#include <list>
#include <set>
#include <unordered_map>

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

}  // namespace

Requests requests_of(const Trace& trace, Bytes object) {
  const std::uint64_t size = std::max<std::uint64_t>(object.value, 1);
  std::vector<std::uint64_t> first;  // object of each tensor
  std::uint64_t objects = 0;
  for (const Tensor& t : trace.tensors) {
    first.push_back(objects);
    objects += (t.bytes.value + size - 1) / size;
  }
  std::vector<Touch> touches = touches_of(trace);
  std::sort(touches.begin(), touches.end());
  Requests requests;
  std::uint64_t told = 0;  // objects of this op and tensor below it were requested
  for (std::size_t i = 0; i < touches.size(); ++i) {
    const Touch& t = touches[i];
    if (i > 0 && (touches[i - 1].op != t.op || touches[i - 1].tensor != t.tensor)) told = 0;
    for (std::uint64_t k = std::max(told, t.begin / size); k * size < t.end; ++k) {
      told = k + 1;
      requests.object.push_back(first[t.tensor] + k);
      requests.op.push_back(t.op);
    }
  }
  return requests;
}

std::uint64_t lru_misses(std::span<const std::uint64_t> requests, std::size_t capacity) {
  std::list<std::uint64_t> recent;  // the least recently requested last
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> held;
  std::uint64_t misses = 0;
  for (const std::uint64_t object : requests) {
    if (const auto found = held.find(object); found != held.end()) {
      recent.splice(recent.begin(), recent, found->second);
      continue;
    }
    ++misses;
    if (capacity == 0) continue;
    if (held.size() == capacity) {
      held.erase(recent.back());
      recent.pop_back();
    }
    recent.push_front(object);
    held[object] = recent.begin();
  }
  return misses;
}

std::uint64_t belady_misses(std::span<const std::uint64_t> requests, std::size_t capacity) {
  const std::vector<std::uint64_t> next = next_requests(requests);
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_next;  // (its next request, object) of what is held
  std::unordered_map<std::uint64_t, std::uint64_t> held;      // object: its next request
  std::uint64_t misses = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto found = held.find(requests[i]);
    if (found != held.end()) {
      by_next.erase({found->second, requests[i]});
    } else {
      ++misses;
      if (capacity == 0) continue;
      if (held.size() == capacity) {
        held.erase(by_next.rbegin()->second);
        by_next.erase(std::prev(by_next.end()));
      }
    }
    held[requests[i]] = next[i];
    by_next.insert({next[i], requests[i]});
  }
  return misses;
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
  for (const Touch& t : touches_of((*profile)->trace)) count += (t.end - t.begin) / size + 1;
  if (count > most)
    return Error{Cause::unsupported,
                 "the step has more than " + std::to_string(most) + " requests; choose larger objects"};
  const Requests requests = requests_of((*profile)->trace, source.options.object);
  const std::vector<std::uint64_t> next = next_requests(requests.object);
  for (std::size_t i = 0; i < requests.object.size(); ++i) {
    little_endian(requests.op[i], out);
    little_endian(requests.object[i], out);
    little_endian(static_cast<std::uint32_t>(size), out);
    little_endian(static_cast<std::int64_t>(next[i]), out);
  }
  return {};
}

}  // namespace exports
}  // namespace vedette
