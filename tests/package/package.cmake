# One case of the package test: install, configure the program against what was installed, build it, run it.
# In: case, build (the build folder), source (the program), compiler, torch (libtorch's folder).
set(work ${build}/package-test/${case})
file(REMOVE_RECURSE ${work})

include(${CMAKE_CURRENT_LIST_DIR}/../support/must_run.cmake)

must_run("cmake --install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/installed)
set(configure ${CMAKE_COMMAND} -S ${source} -B ${work}/build -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
  -D CMAKE_PREFIX_PATH=${work}/installed)

if(case STREQUAL refuses_another_libtorch)
  file(WRITE ${work}/torch/include/torch/headeronly/version.h
    "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n#define TORCH_VERSION_PATCH 1\n")
  execute_process(COMMAND ${configure} -D case=torch -D VEDETTE_TORCH_DIR=${work}/torch RESULT_VARIABLE status
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "was built for libtorch 2\\.[0-9]+, but [^ ]* holds 2\\.10\\.1")
    message(FATAL_ERROR "libtorch 2.10.1 was not refused with a sentence:\n${output}")
  endif()
  return()
endif()

must_run("configuring the program" ${configure} -D case=${case} -D VEDETTE_TORCH_DIR=${torch})
must_run("building the program" ${CMAKE_COMMAND} --build ${work}/build)
if(case STREQUAL torch_cuda)
  set(ENV{VEDETTE_BUILD} ${build})
  set(runner ${CMAKE_CURRENT_LIST_DIR}/../../scripts/with_simulated_gpu)
  must_run("the program without libtorch_cuda.so" ${runner} ${work}/build/without_cuda)
  if(NOT output MATCHES "link the program with vedette::torch_cuda")
    message(FATAL_ERROR "the program without libtorch_cuda.so said: ${output}")
  endif()
endif()
must_run("the program" ${CMAKE_COMMAND} -E chdir ${work} ${runner} ${work}/build/program)
if(NOT output MATCHES "vedette works")
  message(FATAL_ERROR "the program said: ${output}")
endif()
file(REMOVE_RECURSE ${work})  # a copy of the libraries each time
