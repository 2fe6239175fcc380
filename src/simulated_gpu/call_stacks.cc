// Return addresses by glibc's unwinder, frames by Python's own functions, which are looked up in the process: see
// call_stacks.h.
#include "simulated_gpu/call_stacks.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "simulated_gpu/reports.h"

namespace vedette::simulated {
namespace {

constexpr std::size_t most_native = 64, most_python = 24;

template <class Function>
void find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Python's functions of its stable interface, and of every version since 3.9.
struct Python {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  int (*holds_lock)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*give_lock_back)(int) = nullptr;
  void* (*this_thread)() = nullptr;
  void* (*interpreter)() = nullptr;
  void* (*first_of)(void*) = nullptr;
  void* (*next_of)(void*) = nullptr;
  void* (*frame_of)(void*) = nullptr;
  void* (*code_of)(void*) = nullptr;
  void* (*caller_of)(void*) = nullptr;
  int (*line_of)(void*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  const char* (*text_of)(void*) = nullptr;
  void (*let_go)(void*) = nullptr;
  void (*put_error_aside)(void**, void**, void**) = nullptr;
  void (*put_error_back)(void*, void*, void*) = nullptr;

  Python() {
    find(is_initialized, "Py_IsInitialized");
    find(is_finalizing, "Py_IsFinalizing");  // since 3.13
    if (is_finalizing == nullptr) find(is_finalizing, "_Py_IsFinalizing");
    find(holds_lock, "PyGILState_Check");
    find(take_lock, "PyGILState_Ensure");
    find(give_lock_back, "PyGILState_Release");
    find(this_thread, "PyThreadState_Get");
    find(interpreter, "PyInterpreterState_Get");
    find(first_of, "PyInterpreterState_ThreadHead");
    find(next_of, "PyThreadState_Next");
    find(frame_of, "PyThreadState_GetFrame");
    find(code_of, "PyFrame_GetCode");
    find(caller_of, "PyFrame_GetBack");
    find(line_of, "PyFrame_GetLineNumber");
    find(attribute, "PyObject_GetAttrString");
    find(text_of, "PyUnicode_AsUTF8");
    find(let_go, "Py_DecRef");
    find(put_error_aside, "PyErr_Fetch");
    find(put_error_back, "PyErr_Restore");
  }
  bool is_there() const {
    return is_initialized != nullptr && is_finalizing != nullptr && holds_lock != nullptr && take_lock != nullptr &&
           give_lock_back != nullptr && this_thread != nullptr && interpreter != nullptr && first_of != nullptr &&
           next_of != nullptr && frame_of != nullptr && code_of != nullptr && caller_of != nullptr &&
           line_of != nullptr && attribute != nullptr && text_of != nullptr && let_go != nullptr &&
           put_error_aside != nullptr && put_error_back != nullptr;
  }

  std::string text(void* object, const char* name) const {
    void* const value = attribute(object, name);
    const char* const found = value == nullptr ? nullptr : text_of(value);
    std::string copy = found == nullptr ? "?" : found;
    if (value != nullptr) let_go(value);
    return copy;
  }

  std::vector<std::string> frames(void* thread) const {
    std::vector<std::string> all;
    void* frame = frame_of(thread);  // a reference of ours, as each below
    while (frame != nullptr && all.size() < most_python) {
      void* const code = code_of(frame);
      all.push_back(text(code, "co_filename") + ":" + std::to_string(line_of(frame)) + " in " + text(code, "co_name"));
      let_go(code);
      void* const caller = caller_of(frame);
      let_go(frame);
      frame = caller;
    }
    if (frame != nullptr) let_go(frame);
    return all;
  }

  void* first_thread() const {  // the list begins with the newest
    void* last = nullptr;
    for (void* each = first_of(interpreter()); each != nullptr; each = next_of(each)) last = each;
    return last;
  }
};

void add_python(CallStack& stack, PythonLock lock) {
  static const Python python;
  if (!python.is_there() || python.is_initialized() == 0 || python.is_finalizing() != 0) return;
  const bool held = python.holds_lock() != 0;
  if (!held && lock == PythonLock::only_where_held) return;
  const int state = held ? 0 : python.take_lock();
  void *type = nullptr, *value = nullptr, *trace = nullptr;
  python.put_error_aside(&type, &value, &trace);
  stack.python = python.frames(python.this_thread());
  if (void* const first = python.first_thread(); first != python.this_thread())
    stack.of_first_thread = python.frames(first);
  python.put_error_back(type, value, trace);
  if (!held) python.give_lock_back(state);
}

struct Stacks {
  std::mutex guard;
  std::map<CallStack, std::uint32_t> numbers;
  std::vector<const CallStack*> by_number;  // keys of a map stay where they are
};

Stacks& stacks() {
  static auto* const all = new Stacks;  // for ever: threads of streams outlive main()
  return *all;
}

}  // namespace

bool CallStack::operator<(const CallStack& other) const {
  return std::tie(native, python, of_first_thread) < std::tie(other.native, other.python, other.of_first_thread);
}

std::uint32_t stack_here(PythonLock lock) {
  if (!reporting()) return 0;
  CallStack stack;
  stack.native.resize(most_native);
  stack.native.resize(static_cast<std::size_t>(std::max(0, ::backtrace(stack.native.data(), int{most_native}))));
  add_python(stack, lock);
  Stacks& all = stacks();
  const std::lock_guard guard(all.guard);
  const auto [found, fresh] =
      all.numbers.try_emplace(std::move(stack), static_cast<std::uint32_t>(all.by_number.size() + 1));
  if (fresh) all.by_number.push_back(&found->first);
  return found->second;
}

CallStack call_stack(std::uint32_t number) {
  const std::lock_guard guard(stacks().guard);
  return number == 0 || number > stacks().by_number.size() ? CallStack{} : *stacks().by_number[number - 1];
}

}  // namespace vedette::simulated
