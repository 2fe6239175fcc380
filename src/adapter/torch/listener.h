// A callback of libtorch's for operators and autograd's nodes, registered once and off at first. Thread rule: one
// thread at a time.
#pragma once
#include <ATen/record_function.h>

namespace vedette::adapter {

class Listener {
 public:
  explicit Listener(at::RecordFunctionCallback callback)
      : handle_(at::addGlobalCallback(
            callback.needsInputs(true).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {
    at::disableCallback(handle_);
  }
  void turn(bool on) {
    if (on == is_on_) return;
    is_on_ = on;
    if (on) {
      at::reenableCallback(handle_);
    } else {
      at::disableCallback(handle_);
    }
  }

 private:
  const at::CallbackHandle handle_;
  bool is_on_ = false;
};

}  // namespace vedette::adapter
