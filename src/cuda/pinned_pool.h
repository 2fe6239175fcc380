// Pinned host memory for copies to and from a GPU, taken and given back in pieces of any size.
//
// Memory is reserved by mmap, bound to the NUMA node nearest to the GPU, touched, and registered in pieces. A piece is
// as large as the caller expects, else a twentieth of what is registered, at least 2 MiB, in whole slots of the size
// that is needed. So slots leave hardly more free than that twentieth. No size is rounded to a power of two, and no
// call pins a gigabyte at once. A slot lies in one piece; one that is larger than a piece has a piece of its own. Free
// neighbours become one. But for regroup() nothing is unregistered before the end: pinning costs milliseconds. Where
// the driver refuses to register memory, it allocates the piece itself, wherever its node is.
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
    Bytes piece = 64_MiB;  // registered at a time, at most
    Bytes alignment = 4_KiB;
    bool of_driver = false;  // the driver allocates each piece: nothing is registered
  };
  struct Usage {
    Bytes registered, taken;
    bool on_nearest_node = false;  // false where the machine has one node, or refused the binding
    bool of_driver = false;        // the driver refused to register memory, and allocates it
    bool refused = false;          // the driver pins no more: what is registered is the limit from then on
  };

  PinnedPool(std::shared_ptr<const Device>, const Options&);
  ~PinnedPool();  // every copy is done; blocks still taken go with the pool
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // The caller gives the slot back after the last copy that uses it, as an event says.
  Result<std::byte*> take(Bytes bytes);
  void expect(Bytes bytes);  // slots of so much in all are taken next
  // Where there is a limit: gives back whole pieces that are free, for one of so many bytes. False: they are too
  // few, or the driver refuses.
  bool regroup(Bytes bytes);
  std::byte* take_registered(Bytes bytes);  // the same of memory that is there; nullptr: no hole is wide enough
  void give_back(std::byte* slot, Bytes bytes);
  Usage usage() const;

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::optional<Mapping> mapping;  // nullopt: the driver's
    std::size_t bytes = 0;
  };
  using Holes = std::pmr::map<std::byte*, std::size_t>;  // bytes by begin
  std::size_t rounded(Bytes) const noexcept;
  std::byte* take_hole(std::size_t bytes);
  std::size_t piece_for(std::size_t bytes) const;
  void give_back_to_driver(const Piece& piece) const;
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
  std::size_t most_, registered_ = 0, taken_ = 0, expected_ = 0;
  bool on_nearest_node_ = false, of_driver_ = false, refused_ = false;
};

}  // namespace vedette::cuda
