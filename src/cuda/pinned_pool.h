// Pinned host memory for copies to and from a GPU, taken and given back in pieces of any size.
//
// Memory is reserved by mmap, bound to the NUMA node nearest to the GPU, touched, and registered in pieces of a fixed
// size. No size is rounded to a power of two, and no call pins a gigabyte at once. A slot lies in one piece; one that
// is larger than a piece has a piece of its own. Free neighbours become one. Nothing is unregistered before the end:
// pinning costs milliseconds. Where the driver refuses to register memory, it allocates the piece itself, wherever its
// node is.
//
// A process that fork() makes has none of it: the kernel copies pinned pages at once for a child, and a loader of data
// that forks would double them.
//
// Thread rule: any thread; take() may wait for a registration.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <vector>

#include "base/mapping.h"
#include "cuda/device.h"

namespace vedette::cuda {

class PinnedPool {
 public:
  struct Options {
    Bytes most;            // of host memory; 0: without limit
    Bytes piece = 64_MiB;  // registered at a time
    Bytes alignment = 4_KiB;
    bool of_driver = false;  // the driver allocates each piece: nothing is registered
  };
  struct Usage {
    Bytes registered, taken;
    bool on_nearest_node = false;  // false where the machine has one node, or refused the binding
    bool of_driver = false;        // the driver refused to register memory, and allocates it
  };

  PinnedPool(std::shared_ptr<const Device>, const Options&);
  ~PinnedPool();  // every copy is done; blocks still taken go with the pool
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // The caller gives the slot back after the last copy that uses it, as an event says.
  Result<std::byte*> take(Bytes bytes);
  std::byte* take_registered(Bytes bytes);  // the same of memory that is there; nullptr: no hole is wide enough
  void give_back(std::byte* slot, Bytes bytes);
  Usage usage() const;

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::optional<Mapping> mapping;  // nullopt: the driver's
  };
  using Holes = std::pmr::map<std::byte*, std::size_t>;  // bytes by begin
  std::size_t rounded(Bytes) const noexcept;
  std::byte* take_hole(std::size_t bytes);
  Result<void> grow(std::size_t bytes);
  Result<Piece> registered(std::size_t bytes);
  Result<Piece> allocated(std::size_t bytes) const;
  bool bind_to_nearest_node(const Mapping&) const noexcept;

  const std::shared_ptr<const Device> device_;
  const Options options_;
  mutable std::mutex guard_;
  std::vector<Piece> pieces_;  // from here on under guard_
  std::pmr::unsynchronized_pool_resource pool_;
  Holes holes_{&pool_};
  std::size_t registered_ = 0, taken_ = 0;
  bool on_nearest_node_ = false, of_driver_ = false;
};

}  // namespace vedette::cuda
