// The functions of an ELF file by their addresses, from its table of symbols: static ones, too, and those of a program
// that exports none. A stripped file has no such table.
//
// Thread rule: const after construction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace vedette {

class Symbols {
 public:
  explicit Symbols(const std::string& file);  // of a file that cannot be read, or is no ELF file of 64 bits: none
  // The mangled name of the function that holds a byte, counted from where the file is loaded; empty: not known.
  std::string at(std::uint64_t offset) const;

 private:
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::string name;
  };
  std::vector<Function> functions_;  // by begin
};

}  // namespace vedette
