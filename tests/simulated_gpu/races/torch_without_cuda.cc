// A process that holds libtorch's CPU part alone, as one with PyTorch's build for the CPU does.
#include <dlfcn.h>

#include <cstdio>

int main() {
  if (::dlopen("libtorch_cpu.so", RTLD_LAZY) == nullptr) std::puts(::dlerror());
  return 0;
}
