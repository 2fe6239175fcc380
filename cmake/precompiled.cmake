# Headers that g++ reads once for many files: libtorch's take 20 of the 28 s of a file, GoogleTest's 3 of 8. Templates
# that they leave to be instantiated are so in each file that reads them (10 s of libtorch's, 0.8 s of GoogleTest's), so
# that CLI11's and json's gained nothing in small files. Only for g++ in release builds: the clang++ build reads all
# headers in each file, so that a file that lacks an include is found there. A wheel is built without them, too.
include(CMakeDependentOption)
cmake_dependent_option(VEDETTE_PRECOMPILED "Precompile headers (g++, release)" ON
  "CMAKE_CXX_COMPILER_ID STREQUAL GNU;CMAKE_BUILD_TYPE STREQUAL Release;NOT SKBUILD" OFF)
if(VEDETTE_PRECOMPILED AND CCACHE)  # what ccache asks for where headers are precompiled
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# vedette_precompile(OWNER HEADER...): the target's files, and those of targets that reuse it, read HEADERs once.
function(vedette_precompile owner)
  if(VEDETTE_PRECOMPILED)
    target_precompile_headers(${owner} PRIVATE ${ARGN})
    target_compile_options(${owner} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# vedette_reuse_precompiled(TARGET OWNER): compiles TARGET with OWNER's headers; both have the same options for code.
function(vedette_reuse_precompiled target owner)
  if(VEDETTE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()
