# Puts the policy of examples/write_a_policy into a copy of src/policy, as a file and a line in policies.def. Builds
# that copy in front of the library, and asks a program for the policy by its name. The other policies come from the
# library, so that only the new one and the table are compiled. In: source (the project), work (a folder of its own),
# library (libvedette.a), compiler, flags, cbc (whether the library was built with it).
file(REMOVE_RECURSE ${work})

include(${CMAKE_CURRENT_LIST_DIR}/../support/must_run.cmake)

file(COPY ${source}/src/policy/CMakeLists.txt ${source}/src/policy/policies.def ${source}/src/policy/makers.h
  ${source}/src/policy/table.cc
  DESTINATION ${work}/src/policy)

file(WRITE ${work}/CMakeLists.txt [[
cmake_minimum_required(VERSION 3.25)
project(copy LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Threads REQUIRED)
add_library(vedette STATIC)
target_include_directories(vedette PUBLIC src ${source}/src ${source}/include)
add_subdirectory(src/policy)
add_executable(program program.cc)
target_link_libraries(program PRIVATE vedette ${library} vedette Threads::Threads)
]])
file(WRITE ${work}/program.cc [[
#include <cstdio>
#include "vedette/policy.h"
int main() {
  const auto policy = vedette::make_policy("anybody", 1);
  if (policy == nullptr || vedette::policies().back().name != policy->name()) return 1;
  std::printf("%zu policies\n", vedette::policies().size());
}
]])
must_run("configuring" ${CMAKE_COMMAND} -S ${work} -B ${work}/build -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
  "-D CMAKE_CXX_FLAGS=${flags}" -D VEDETTE_CBC=${cbc}
  -D source=${source} -D library=${library})

# The file, and the line. CMake finds the file by itself: nothing is configured by hand after this.
file(READ ${source}/examples/write_a_policy.cc example)
string(FIND "${example}" "struct AnybodyLeaves" begin)
string(FIND "${example}" "\n};\n" end)
math(EXPR length "${end} + 4 - ${begin}")
string(SUBSTRING "${example}" ${begin} ${length} class)
file(WRITE ${work}/src/policy/anybody.cc "#include \"policy/makers.h\"\nnamespace vedette {\n${class}"
  "std::unique_ptr<Policy> make_anybody(std::uint64_t) { return std::make_unique<AnybodyLeaves>(); }\n}\n")
file(APPEND ${work}/src/policy/policies.def
  "VEDETTE_POLICY(anybody, \"anybody\", \"no paper\", \"tensors drawn at random leave\")\n")

must_run("building" ${CMAKE_COMMAND} --build ${work}/build)
must_run("the program" ${work}/build/program)
file(STRINGS ${source}/src/policy/policies.def lines REGEX "^VEDETTE_POLICY")
list(LENGTH lines before)
math(EXPR now "${before} + 1")
if(NOT output STREQUAL "${now} policies\n")
  message(FATAL_ERROR "with ${before} policies before, the program said: ${output}")
endif()
file(REMOVE_RECURSE ${work})
