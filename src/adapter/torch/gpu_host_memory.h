// Whether operators use pinned memory of the host as if it were the GPU's. libtorch knows no such tensors, so that some
// are tried, once in a process: a look-up of rows, a change of them, a copy to a row, and one to the host.
//
// Thread rule: the thread whose op begins, before it does.
#pragma once

namespace vedette::adapter {

class GpuStorages;

bool uses_host_memory(const GpuStorages& gpu);

}  // namespace vedette::adapter
