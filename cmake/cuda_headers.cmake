# GPU_PROBE_CUDA_HEADERS: the folder of CUDA's headers as the wheels beside libtorch bring them, or empty where one is
# missing. They check bench/gpu_probe's own declarations (tests/bench/gpu_layout.cc) and let the CUDA part of
# gpu_probe_torch be compiled; the probe itself does without.
set(GPU_PROBE_CUDA_HEADERS)
file(GLOB _vedette_cuda_headers ${VEDETTE_TORCH_DIR}/../nvidia/cu13/include
  ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/include)
foreach(_folder IN LISTS _vedette_cuda_headers)
  if(EXISTS ${_folder}/cuda_runtime_api.h AND EXISTS ${_folder}/crt/host_defines.h AND EXISTS ${_folder}/cupti.h
     AND EXISTS ${_folder}/nvml.h)
    set(GPU_PROBE_CUDA_HEADERS ${_folder})
    break()
  endif()
endforeach()
