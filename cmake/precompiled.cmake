# Headers that g++ reads once for many files: libtorch's take 20 of the 28 s of a file, GoogleTest's 3 of 8. Templates
# that they leave to be instantiated are so in each file that reads them (10 s of libtorch's, 0.8 s of GoogleTest's), so
# that CLI11's and json's gained nothing in small files. Only for g++ in release builds: the clang++ build reads all
# headers in each file, so that a file that lacks an include is found there. A wheel is built without them, too.
include(CMakeDependentOption)
cmake_dependent_option(VEDETTE_PRECOMPILED "Precompile headers (g++, release)" ON
  "CMAKE_CXX_COMPILER_ID STREQUAL GNU;CMAKE_BUILD_TYPE STREQUAL Release;NOT SKBUILD" OFF)

# vedette_precompile(OWNER HEADER...): the target's files, and those of targets that reuse it, read HEADERs once.
function(vedette_precompile owner)
  if(VEDETTE_PRECOMPILED)
    target_precompile_headers(${owner} PRIVATE ${ARGN})
    target_compile_options(${owner} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# vedette_reuse_precompiled(TARGET OWNER): compiles TARGET with OWNER's headers. Both have the same options for code and
# are position independent as libraries are; TARGET's functions get the level of optimisation of OWNER's headers.
function(vedette_reuse_precompiled target owner)
  if(VEDETTE_PRECOMPILED)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fpch-preprocess -fPIC)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# Tests and programs around libtorch spend their time in the libraries: a lower level compiles them in half to three
# quarters of the time.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(harness_options -O1)
endif()

# vedette_torch_harness(TARGET...): programs around libtorch. They have the headers of tests, where tests are built.
function(vedette_torch_harness)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE ${harness_options})
    if(TARGET torch_test_headers)
      vedette_reuse_precompiled(${target} torch_test_headers)
      target_compile_definitions(${target} PRIVATE GTEST_HAS_PTHREAD=1)  # as the headers were read
    endif()
  endforeach()
endfunction()
