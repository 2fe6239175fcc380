// The frames of one device that several processes have: how many each of them holds, in a file that all of them map.
// What a process that has died held is free. The bytes stay each process's own.
//
// Thread rule: one thread at a time in a process.
#pragma once
#include <cstddef>
#include <string>

namespace vedette::simulated {

class SharedFrames {
 public:
  explicit SharedFrames(const std::string& path);  // empty: this process has the device alone
  ~SharedFrames();
  SharedFrames(const SharedFrames&) = delete;
  SharedFrames& operator=(const SharedFrames&) = delete;

  bool take(std::size_t count, std::size_t of);  // false: all hold more than `of` then, and nothing is taken
  void give_back(std::size_t count);
  std::size_t of_others() const;

 private:
  struct Holder;
  struct Locked;
  Holder* mine() const;
  std::size_t all_of_others() const;

  int file_ = -1;
  Holder* holders_ = nullptr;
};

}  // namespace vedette::simulated
