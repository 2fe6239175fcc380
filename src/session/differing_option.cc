// Option by option: see differing_option.h.
#include "session/differing_option.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/gpu_name.h"

namespace vedette::detail {

const char* differing_option(const SessionOptions& first, const SessionOptions& other) {
  static const SessionOptions none;
  const auto differs = [&](auto member) { return other.*member != none.*member && other.*member != first.*member; };
  const std::pair<const char*, bool> options[] = {
      {"slow", differs(&SessionOptions::slow)},
      {"fast", other.fast != none.fast && gpu_name(other.fast) != gpu_name(first.fast)},
      {"policy", differs(&SessionOptions::policy)},
      {"chunk", differs(&SessionOptions::chunk)},
      {"warmup_steps", differs(&SessionOptions::warmup_steps)},
      {"profile", differs(&SessionOptions::profile)},
      {"tracker", differs(&SessionOptions::tracker)},
      {"observer", differs(&SessionOptions::observer)},
      {"seed", differs(&SessionOptions::seed)},
      {"ranks", differs(&SessionOptions::ranks)},
      {"interference_percent", differs(&SessionOptions::interference_percent)},
      {"fault_time", differs(&SessionOptions::fault_time)},
      {"checksums", differs(&SessionOptions::checksums)},
      {"table_memory", differs(&SessionOptions::table_memory)},
      {"max_writes", differs(&SessionOptions::max_writes)},
      {"pressure", differs(&SessionOptions::pressure)},
      {"share", differs(&SessionOptions::share)},
      {"record", differs(&SessionOptions::record)},
      {"recompute", differs(&SessionOptions::recompute)}};
  const auto found = std::find_if(std::begin(options), std::end(options), [](const auto& each) { return each.second; });
  return found == std::end(options) ? nullptr : found->first;
}

}  // namespace vedette::detail
