# libtorch as imported targets, out of a Python wheel (or an unpacked libtorch), for programs that run on the CPU.
#
# The wheel's own TorchConfig.cmake demands a CUDA toolkit with nvcc when the wheel was built for CUDA, even where
# nothing here needs one. This module takes the three libraries and the headers as they lie.
#
#   VEDETTE_TORCH_DIR       folder that holds include/ and lib/ (".../site-packages/torch"); default: under pip that of
#                           the environment that pip installs into, then VEDETTE_VENV, the tree's .venv
#   VedetteTorch_FOUND, VedetteTorch_VERSION
#   VedetteTorch::torch     headers and libraries; programs that link it find libtorch at run time by rpath, but for a
#                           target with the property VEDETTE_FINDS_TORCH_LOADED, an extension of Python's
#   VedetteTorch::torch_cuda  that and libtorch_cuda.so, where there is one, loaded as the program begins
#
# libtorch's C++ interface changes from minor version to minor version. The one of a build decides: it is the only one
# that an installed vedette accepts (VEDETTE_TORCH_BUILT_FOR). A build takes any that has what the adapter asks for:
# where a version was never tried, torch_api.cc is compiled first, and the failure names what is missing.
set(_vedette_torch_tried 2.11 2.12 2.13 2.14 2.15)
if(SKBUILD AND VEDETTE_TORCH_DIR AND NOT EXISTS ${VEDETTE_TORCH_DIR}/include)  # of an environment that is gone
  foreach(_vedette_found VEDETTE_TORCH_DIR VedetteTorch_INCLUDE_DIR VedetteTorch_API_INCLUDE_DIR
    VedetteTorch_torch_LIBRARY VedetteTorch_torch_cpu_LIBRARY VedetteTorch_c10_LIBRARY
    VedetteTorch_torch_python_LIBRARY)
    unset(${_vedette_found} CACHE)
  endforeach()
endif()
if(NOT VEDETTE_TORCH_DIR)
  set(_vedette_torch_candidates)
  if(SKBUILD)  # the paths of the interpreter are right in pip's isolated builds, too, where torch cannot be imported
    execute_process(COMMAND ${Python_EXECUTABLE} -c
      "import site, sysconfig; print(*dict.fromkeys([sysconfig.get_path('platlib'), sysconfig.get_path('purelib'), \
*site.getsitepackages()]), sep=';')" OUTPUT_VARIABLE _vedette_torch_sites OUTPUT_STRIP_TRAILING_WHITESPACE)
    foreach(_vedette_site IN LISTS _vedette_torch_sites)
      if(EXISTS ${_vedette_site}/torch/include/torch/script.h)
        list(APPEND _vedette_torch_candidates ${_vedette_site}/torch)
      endif()
    endforeach()
  endif()
  if(NOT VEDETTE_VENV)
    set(VEDETTE_VENV ${CMAKE_SOURCE_DIR}/.venv)
  endif()
  file(GLOB _vedette_torch_of_tree ${VEDETTE_VENV}/lib/python3*/site-packages/torch)
  list(APPEND _vedette_torch_candidates ${_vedette_torch_of_tree})
  if(_vedette_torch_candidates)
    list(GET _vedette_torch_candidates 0 _vedette_torch_found)
    set(VEDETTE_TORCH_DIR ${_vedette_torch_found} CACHE PATH "libtorch: the folder with include/ and lib/" FORCE)
  endif()
endif()

find_path(VedetteTorch_INCLUDE_DIR torch/script.h PATHS ${VEDETTE_TORCH_DIR}/include NO_DEFAULT_PATH)
find_path(VedetteTorch_API_INCLUDE_DIR torch/torch.h PATHS ${VEDETTE_TORCH_DIR}/include/torch/csrc/api/include
  NO_DEFAULT_PATH)
foreach(_vedette_library torch torch_cpu c10)
  find_library(VedetteTorch_${_vedette_library}_LIBRARY ${_vedette_library} PATHS ${VEDETTE_TORCH_DIR}/lib
    NO_DEFAULT_PATH)
endforeach()

# The version lies in a header, which moved in 2.10.
foreach(_vedette_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT VedetteTorch_VERSION AND EXISTS ${VEDETTE_TORCH_DIR}/include/${_vedette_header})
    file(STRINGS ${VEDETTE_TORCH_DIR}/include/${_vedette_header} _vedette_lines REGEX
      "TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCH "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)" _ "${_vedette_lines}")
    if(_)
      set(VedetteTorch_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
      set(_vedette_torch_minor ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
    endif()
  endif()
endforeach()
if(VedetteTorch_VERSION AND VEDETTE_TORCH_BUILT_FOR)
  if(NOT _vedette_torch_minor VERSION_EQUAL VEDETTE_TORCH_BUILT_FOR)
    message(FATAL_ERROR "This vedette was built for libtorch ${VEDETTE_TORCH_BUILT_FOR}, but ${VEDETTE_TORCH_DIR} "
      "holds ${VedetteTorch_VERSION}: name the folder of a libtorch ${VEDETTE_TORCH_BUILT_FOR} in VEDETTE_TORCH_DIR, \
or build vedette for the other one.")
  endif()
elseif(VedetteTorch_VERSION AND NOT _vedette_torch_minor IN_LIST _vedette_torch_tried
       AND NOT "${VEDETTE_TORCH_DIR} ${VedetteTorch_VERSION}" STREQUAL VedetteTorch_ASKED)
  set(_vedette_definitions -DNDEBUG)
  set(_vedette_includes ${VedetteTorch_INCLUDE_DIR} ${VedetteTorch_API_INCLUDE_DIR}
    ${CMAKE_CURRENT_LIST_DIR}/../src)
  include(${CMAKE_CURRENT_LIST_DIR}/cuda_headers.cmake)
  if(GPU_PROBE_CUDA_HEADERS AND EXISTS ${VEDETTE_TORCH_DIR}/lib/libc10_cuda.so)
    list(APPEND _vedette_definitions -DVEDETTE_CUDA_PART)
    list(APPEND _vedette_includes ${GPU_PROBE_CUDA_HEADERS})
  endif()
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(_vedette_has_all ${CMAKE_BINARY_DIR}/torch_api ${CMAKE_CURRENT_LIST_DIR}/torch_api.cc
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${_vedette_includes}" COMPILE_DEFINITIONS ${_vedette_definitions}
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE _vedette_said)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  if(_vedette_has_all)
    message(STATUS "libtorch ${VedetteTorch_VERSION} was never tried with vedette, and has what vedette asks for")
    set(VedetteTorch_ASKED "${VEDETTE_TORCH_DIR} ${VedetteTorch_VERSION}" CACHE INTERNAL "has what is asked for")
  else()
    string(REGEX MATCHALL "(error|note): [^\n]*(needs [^\n]*|pure[^\n]*|virtual [^\n]*)" _vedette_missing
      "${_vedette_said}")
    if(NOT _vedette_missing)
      string(REGEX MATCHALL "error: [^\n]*" _vedette_missing "${_vedette_said}")
    endif()
    list(JOIN _vedette_missing "\n  " _vedette_missing)
    message(FATAL_ERROR "libtorch ${VedetteTorch_VERSION} in ${VEDETTE_TORCH_DIR} was never tried with vedette, and \
lacks what vedette needs. The compiler's words:\n  ${_vedette_missing}\nInstall a torch that was tried \
(${_vedette_torch_tried}), or build with VEDETTE_TORCH=OFF.")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(VedetteTorch
  REQUIRED_VARS VedetteTorch_torch_cpu_LIBRARY VedetteTorch_c10_LIBRARY VedetteTorch_torch_LIBRARY
  VedetteTorch_INCLUDE_DIR
    VedetteTorch_API_INCLUDE_DIR
  VERSION_VAR VedetteTorch_VERSION
  REASON_FAILURE_MESSAGE
  "set VEDETTE_TORCH_DIR to the folder of a libtorch, which scripts/setup.sh installs in .venv, or build with \
VEDETTE_TORCH=OFF (under pip: pip install torch first)")

if(VedetteTorch_FOUND AND NOT TARGET VedetteTorch::torch)
  set(_vedette_includes ${VedetteTorch_INCLUDE_DIR} ${VedetteTorch_API_INCLUDE_DIR})
  foreach(_vedette_library torch torch_cpu c10)
    add_library(VedetteTorch::${_vedette_library}_library SHARED IMPORTED GLOBAL)
    set_target_properties(VedetteTorch::${_vedette_library}_library PROPERTIES
      IMPORTED_LOCATION ${VedetteTorch_${_vedette_library}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES
      "${_vedette_includes}")
  endforeach()
  add_library(VedetteTorch::torch INTERFACE IMPORTED GLOBAL)
  # libtorch_cpu of a CUDA wheel names CUDA libraries that lie beside it in the wheel and that it finds by its own
  # rpath; the linker need not see them.
  set_target_properties(VedetteTorch::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_vedette_includes}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_vedette_includes}"
    INTERFACE_LINK_LIBRARIES "VedetteTorch::torch_cpu_library;VedetteTorch::c10_library"
    INTERFACE_LINK_OPTIONS "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:VEDETTE_FINDS_TORCH_LOADED>>>:\
LINKER:--unresolved-symbols=ignore-in-shared-libs;LINKER:-rpath,${VEDETTE_TORCH_DIR}/lib>")
  if(EXISTS ${VEDETTE_TORCH_DIR}/lib/libtorch_cuda.so)
    # The program names nothing of it.
    add_library(VedetteTorch::torch_cuda INTERFACE IMPORTED GLOBAL)
    set_target_properties(VedetteTorch::torch_cuda PROPERTIES
      INTERFACE_LINK_LIBRARIES "VedetteTorch::torch" INTERFACE_LINK_OPTIONS
      "LINKER:--push-state,--no-as-needed;${VEDETTE_TORCH_DIR}/lib/libtorch_cuda.so;LINKER:--pop-state")
  endif()
endif()
