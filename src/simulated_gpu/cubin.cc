// Sections and records of a cubin: see cubin.h.
#include "simulated_gpu/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace vedette::simulated {
namespace {

constexpr unsigned char short_value = 4;        // EIFMT_SVAL
constexpr unsigned char parameter_info = 0x17;  // EIATTR_KPARAM_INFO

template <class T>
T read_at(const char* at) {  // an image may lie anywhere
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

ParameterSizes parameters_of(const char* at, std::size_t bytes) {
  std::map<unsigned, std::size_t> sizes;  // by place
  for (const char* const end = at + bytes; at + 4 <= end;) {
    const auto format = static_cast<unsigned char>(at[0]), attribute = static_cast<unsigned char>(at[1]);
    const std::size_t size = format == short_value ? read_at<std::uint16_t>(at + 2) : 0;
    if (format == short_value && attribute == parameter_info)
      sizes[read_at<std::uint16_t>(at + 8)] = read_at<std::uint32_t>(at + 12) >> 18;
    at += 4 + size;
  }
  ParameterSizes found;
  for (const auto& [place, size] : sizes) found.push_back(size);
  return found;
}

}  // namespace

bool is_cubin(const void* image) { return std::memcmp(image, ELFMAG, SELFMAG) == 0; }

Cubin read_cubin(const char* image) {
  const auto header = read_at<Elf64_Ehdr>(image);
  const auto section = [&](unsigned i) { return read_at<Elf64_Shdr>(image + header.e_shoff + i * sizeof(Elf64_Shdr)); };
  std::size_t end = std::max(header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr),
                             header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize);
  const char* const names = image + section(header.e_shstrndx).sh_offset;
  Cubin made;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    const std::string name = names + each.sh_name;
    if (name.starts_with(".text.")) made.kernels[name.substr(6)];
    if (name.starts_with(".nv.info."))
      made.kernels[name.substr(9)] = parameters_of(image + each.sh_offset, each.sh_size);
    if (each.sh_type != SHT_NOBITS) end = std::max<std::size_t>(end, each.sh_offset + each.sh_size);
  }
  made.image.assign(image, end);
  return made;
}

}  // namespace vedette::simulated
