// A session on a GPU tells more than Observer's events: the stream of each op, how to read the device's energy, and
// what its tables are. An observer that inherits from GpuObserver as well is found by its type.
//
// Thread rule: all calls come as Observer::op_began() does.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "vedette/gpu.h"
#include "vedette/model.h"

namespace vedette {

// Millijoules that a device took since its driver was loaded, whatever process caused them; nullopt: no counter can be
// read. The first call may take tens of milliseconds, since it loads the library that counts. It outlives the session.
// Thread rule: any thread, one at a time.
using EnergyCounter = std::function<std::optional<std::uint64_t>()>;

class GpuObserver {
 public:
  virtual ~GpuObserver() = default;
  virtual void counts_energy(const EnergyCounter& /*of_the_device*/) {}  // called after opened()
  // Streams count from 0, in the order in which ops first came to them. Called before op_ended().
  virtual void op_ran_on(std::uint64_t /*step*/, OpIndex, std::uint32_t /*stream*/) {}
  // Where the session has memory for tables: as a step begins, and as the session ends. It allocates no table.
  virtual void has_tables(const GpuTableCounters& /*since_opened*/) {}
};

}  // namespace vedette
