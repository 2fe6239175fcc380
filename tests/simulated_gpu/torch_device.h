// libtorch's CUDA device on the simulated GPU, inside a test's own process, as scripts/with_simulated_gpu gives it to
// another program: the process begins again with the simulated libraries in front.
//
// Each test case is a process of its own (ctest runs one at a time), since a device is opened once.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "simulated_gpu/control.h"

namespace vedette::testing {

// libtorch's CPU library names CUDA's runtime, too, so that the libraries have to be there before the program begins.
inline void begin_again_with_simulated_libraries() {
  constexpr const char* done = "SIMULATED_LIBRARIES";
  if (std::getenv(done) != nullptr) return;
  const std::string folder = VEDETTE_BUILD "/src/simulated_gpu/lib/";
  std::string preload;
  std::ifstream names(folder + "preload");
  for (std::string name; names >> name;) preload += (preload.empty() ? "" : ":") + folder + name;
  if (preload.empty()) return;
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::setenv("OMP_WAIT_POLICY", "passive", 0);  // these three as the script does
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 0);
  ::setenv("CUBLASLT_WORKSPACE_SIZE", "128", 0);
  ::setenv(done, "1", 1);
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
}
inline const bool began_again = (begin_again_with_simulated_libraries(), true);

// Empty, or what is missing. Calls no function of CUDA's, so that a process may still fork.
inline std::string load_simulated_libraries() {
#ifndef SIMULATED_KERNELS
  return "libtorch_cuda.so or CUDA's headers are missing: install a libtorch for CUDA (scripts/setup.sh)";
#else
  return ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL) == nullptr ? ::dlerror() : "";
#endif
}

// After load_simulated_libraries().
inline simulated::Control& control() {
  static simulated::Control* const found =
      reinterpret_cast<simulated::Control* (*)()>(::dlsym(RTLD_DEFAULT, "simulated_gpu"))();
  return *found;
}

}  // namespace vedette::testing
