// A reader of ELF's symbol table (elf(5)). Whatever the file claims, nothing outside of it is read.
#include "profiler/symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

namespace vedette {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{256} << 20;  // of one section

class File {
 public:
  explicit File(const std::string& path) : file_(path, std::ios::binary) {}

  template <class T>
  std::optional<T> at(std::uint64_t offset) {
    T value;
    if (!read(offset, reinterpret_cast<char*>(&value), sizeof value)) return std::nullopt;
    return value;
  }
  std::string bytes(std::uint64_t offset, std::uint64_t size) {
    std::string all(std::min(size, most_bytes), '\0');
    if (!read(offset, all.data(), all.size())) all.clear();
    return all;
  }

 private:
  bool read(std::uint64_t offset, char* into, std::size_t size) {
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    return file_.read(into, static_cast<std::streamsize>(size)).gcount() == static_cast<std::streamsize>(size);
  }
  std::ifstream file_;
};

}  // namespace

Symbols::Symbols(const std::string& path) {
  File file(path);
  const auto header = file.at<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) return;
  const auto section = [&](std::uint64_t number) {
    return file.at<Elf64_Shdr>(header->e_shoff + number * sizeof(Elf64_Shdr));
  };
  // A program at fixed addresses has these in its table, a movable one offsets.
  std::uint64_t loaded = 0;
  for (std::uint64_t i = 0; i < header->e_phnum && header->e_type == ET_EXEC; ++i) {
    const auto part = file.at<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
    if (part && part->p_type == PT_LOAD && (loaded == 0 || part->p_vaddr < loaded)) loaded = part->p_vaddr;
  }
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto table = section(i);
    if (!table || table->sh_type != SHT_SYMTAB) continue;
    const auto strings = section(table->sh_link);
    if (!strings) return;
    const std::string symbols = file.bytes(table->sh_offset, table->sh_size),
                      names = file.bytes(strings->sh_offset, strings->sh_size);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, symbols.data() + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_name >= names.size()) continue;
      const std::uint64_t begin = symbol.st_value - loaded;
      functions_.push_back({begin, begin + symbol.st_size, names.c_str() + symbol.st_name});
    }
  }
  std::sort(functions_.begin(), functions_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

std::string Symbols::at(std::uint64_t offset) const {
  const auto after = std::upper_bound(functions_.begin(), functions_.end(), offset,
                                      [](std::uint64_t o, const Function& f) { return o < f.begin; });
  if (after == functions_.begin() || std::prev(after)->end <= offset) return {};
  return std::prev(after)->name;
}

}  // namespace vedette
