// What the fuzzers of the readers share. With clang each is a libFuzzer program; with other compilers plain_main.cc
// calls it with the corpus and with random changes of it, without looking at coverage.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
