// Every program, at percents of the memory that it needs.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "foreign/programs.h"

namespace vedette::test::foreign {

inline std::vector<Program> all_programs() {
  std::vector<Program> programs;
  for (const auto& some : {language_programs(), vision_programs(), optimizer_programs(), science_programs()})
    programs.insert(programs.end(), some.begin(), some.end());
  return programs;
}

class Foreign : public ::testing::TestWithParam<std::tuple<std::size_t, std::uint64_t>> {};

TEST_P(Foreign, GivesTheSameBits) {
  const auto [program, percent] = GetParam();
  expect_same_bits(all_programs()[program].run, percent);
}

inline auto of_all_programs(const std::vector<std::uint64_t>& percents) {
  return ::testing::Combine(::testing::Range(std::size_t{0}, all_programs().size()), ::testing::ValuesIn(percents));
}

inline std::string name_of(const ::testing::TestParamInfo<Foreign::ParamType>& info) {
  return std::string(all_programs()[std::get<0>(info.param)].name) + "_at_" + std::to_string(std::get<1>(info.param)) +
         "_percent";
}

}  // namespace vedette::test::foreign
