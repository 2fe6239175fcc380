// Host tensors that queued work reads or writes. A reference to one may need Python's lock (GIL), also where it is not
// the last, and a thread that has the lock may wait for the stream. So the work has aliases that own nothing, and a
// thread of the program lets go of the tensors, with the next operator.
//
// Thread rule: any thread of the program.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace vedette::simulated {

class HostTensors {
 public:
  using Done = std::shared_ptr<std::atomic<bool>>;
  void keep(std::vector<at::Tensor> tensors, const Done& done);  // until it is done
  void let_go();                                                 // of those whose work is done

 private:
  struct Kept {
    Done done;
    std::vector<at::Tensor> tensors;
  };
  std::mutex guard_;
  std::vector<Kept> kept_;
};

HostTensors& host_tensors();

at::Tensor alias_on_host(const at::Tensor& tensor);  // the same bytes; it keeps nothing alive

}  // namespace vedette::simulated
