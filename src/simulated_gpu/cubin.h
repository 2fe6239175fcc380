// What is read of a cubin, which a compiler made for the device: its kernels, and how large their parameters are.
//
// A cubin is an ELF file. The section .nv.info.NAME of a kernel has a record EIATTR_KPARAM_INFO for each parameter, as
// cuobjdump -elf shows them. It has the parameter's place in the row, and in the high 14 bits of its last word the size
// in bytes.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace vedette::simulated {

using ParameterSizes = std::vector<std::size_t>;  // bytes, in the kernel's order

struct Cubin {
  std::string image;  // the whole file
  std::map<std::string, ParameterSizes> kernels;
};

bool is_cubin(const void* image);
Cubin read_cubin(const char* image);

}  // namespace vedette::simulated
