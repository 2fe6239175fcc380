// Memory that the zap tracker can watch, with one owner: pages of a memfd, mapped shared and registered with a
// userfaultfd for asynchronous write protection. For tests, benches and the behaviour probe; the engine gets such
// memory from open_file_memory.
#pragma once
#include <cstddef>
#include <utility>

#include "base/mapping.h"
#include "os/page_tracker.h"
#include "os/uffd.h"
#include "vedette/result.h"

namespace vedette {

class TrackedMemory {
 public:
  // Zeroed memory of whole pages, every page allocated. Needs Linux >= 6.7 and userfaultfd (user mode only is enough).
  static Result<TrackedMemory> create(Bytes bytes);

  std::byte* data() const noexcept { return mapping_.data(); }
  AddressRange range() const noexcept { return {mapping_.data(), mapping_.bytes().value}; }
  // The same bytes at a second address whose accesses are not tracked.
  std::byte* alias() const noexcept { return alias_.data(); }

 private:
  explicit TrackedMemory(Userfaultfd userfaultfd) noexcept : userfaultfd_(std::move(userfaultfd)) {}

  Mapping mapping_, alias_;
  Userfaultfd userfaultfd_;  // closing it ends the registration
};

}  // namespace vedette
