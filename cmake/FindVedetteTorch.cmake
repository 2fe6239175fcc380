# libtorch as imported targets, out of a Python wheel (or an unpacked libtorch), for programs that run on the CPU.
#
# The wheel's own TorchConfig.cmake demands a CUDA toolkit with nvcc when the wheel was built for CUDA, even where
# nothing here needs one. This module takes the three libraries and the headers as they lie.
#
#   VEDETTE_TORCH_DIR       folder that holds include/ and lib/ (".../site-packages/torch"); default: under pip that of
#                           the environment that pip installs into, then the tree's .venv
#   VedetteTorch_FOUND, VedetteTorch_VERSION
#   VedetteTorch::torch     headers and libraries; programs that link it find libtorch at run time by rpath, but for a
#                           target with the property VEDETTE_FINDS_TORCH_LOADED, an extension of Python's
#
# libtorch's C++ interface changes from minor version to minor version, so that another one is refused.
set(_vedette_torch_wanted 2.11)
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
  file(GLOB _vedette_torch_of_tree ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
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
if(VedetteTorch_VERSION AND NOT _vedette_torch_minor VERSION_EQUAL _vedette_torch_wanted)
  message(FATAL_ERROR "vedette is written for libtorch ${_vedette_torch_wanted}.x, but ${VEDETTE_TORCH_DIR} holds "
    "${VedetteTorch_VERSION}: install torch==2.11.0 and name its folder in VEDETTE_TORCH_DIR, \
or build with VEDETTE_TORCH=OFF.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(VedetteTorch
  REQUIRED_VARS VedetteTorch_torch_cpu_LIBRARY VedetteTorch_c10_LIBRARY VedetteTorch_torch_LIBRARY
  VedetteTorch_INCLUDE_DIR
    VedetteTorch_API_INCLUDE_DIR
  VERSION_VAR VedetteTorch_VERSION
  REASON_FAILURE_MESSAGE
  "set VEDETTE_TORCH_DIR to the folder of libtorch ${_vedette_torch_wanted}, which scripts/setup.sh \
installs in .venv, or build with VEDETTE_TORCH=OFF (under pip: pip install 'torch==${_vedette_torch_wanted}.*' first)")

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
endif()
