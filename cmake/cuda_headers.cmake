# GPU_PROBE_CUDA_HEADERS: the folder of CUDA's headers (cuda.h, cuda_runtime_api.h, cupti.h, crt/) as the wheels beside libtorch bring
# them, or not found. They check bench/gpu_probe's own declarations (tests/bench/gpu_layout.cc) and let the CUDA part of gpu_probe_torch be
# compiled; the probe itself does without.
file(GLOB _vedette_cuda_headers ${VEDETTE_TORCH_DIR}/../nvidia/cu13/include
  ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/include)
find_path(GPU_PROBE_CUDA_HEADERS crt/host_defines.h PATHS ${_vedette_cuda_headers} NO_DEFAULT_PATH)
mark_as_advanced(GPU_PROBE_CUDA_HEADERS)
