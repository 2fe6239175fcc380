// The places that the program gives tensors by their names, Session::place().
//
// Thread rule: none of its own; the session's lock guards it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pack/units.h"

namespace vedette::detail {

class NamedPlaces {
 public:
  bool none() const noexcept { return places_.empty(); }
  // `names`: a pattern of fnmatch(3). Of several that match a tensor the one that was added last counts.
  void add(std::string_view names, Wish wish) { places_.push_back({std::string(names), wish}); }
  // Before units are made of the log.
  void mark(StepLog& log);
  // A sentence for each pattern that a profiled step was searched for in vain, once.
  std::optional<std::string> found_nothing();

 private:
  struct Place {
    std::string names;
    Wish wish;
    bool searched = false, found = false;
  };
  std::vector<Place> places_;
  std::string an_example_;  // of a name
};

}  // namespace vedette::detail
