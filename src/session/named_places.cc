// Patterns and names: see named_places.h.
#include "session/named_places.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

namespace vedette::detail {

void NamedPlaces::mark(StepLog& log) {
  if (places_.empty()) return;
  for (LoggedTensor& tensor : log.tensors) {
    if (an_example_.empty() && tensor.birth == 0) an_example_ = tensor.name;
    for (Place& place : places_) {
      place.searched = true;
      if (::fnmatch(place.names.c_str(), tensor.name.c_str(), 0) != 0) continue;
      tensor.wish = place.wish;
      place.found = true;
    }
  }
}

std::optional<std::string> NamedPlaces::found_nothing() {
  const auto in_vain = std::ranges::find_if(places_, [](const Place& place) { return place.searched && !place.found; });
  if (in_vain == places_.end()) return std::nullopt;
  in_vain->found = true;
  std::string sentence = "place(\"" + in_vain->names + "\"): no tensor of the step has such a name";
  if (!an_example_.empty()) sentence += "; they have names like \"" + an_example_ + "\"";
  return sentence + ", as `vedette ask RUN hottest` lists them";
}

}  // namespace vedette::detail
