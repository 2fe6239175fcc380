# GPU_PROBE_CUDA_HEADERS: the folder of CUDA's headers as the wheels beside libtorch bring them, or empty where one is
# missing. They check the declarations of src/cuda and of bench/gpu_probe (tests/cuda/layout.cc,
# tests/bench/gpu_layout.cc) and let what needs libtorch's CUDA part be compiled; vedette and the probe do without.
set(GPU_PROBE_CUDA_HEADERS)
file(GLOB _vedette_cuda_headers ${VEDETTE_TORCH_DIR}/../nvidia/cu13/include
  ${VEDETTE_VENV}/lib/python3*/site-packages/nvidia/cu13/include)
foreach(_folder IN LISTS _vedette_cuda_headers)
  if(EXISTS ${_folder}/cuda_runtime_api.h AND EXISTS ${_folder}/crt/host_defines.h AND EXISTS ${_folder}/cupti.h
     AND EXISTS ${_folder}/nvml.h)
    set(GPU_PROBE_CUDA_HEADERS ${_folder})
    break()
  endif()
endforeach()
