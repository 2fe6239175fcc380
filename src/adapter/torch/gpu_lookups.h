// Which rows of a GPU's tables operators look up: for the session, which counts them (gpu/tables.h). The
// numbers of the rows lie in device memory, and are passed on behind the operator, while they stay where it had them.
//
// Thread rule: any thread; prepare_for_lookups() before listen_to_operators().
#pragma once

namespace vedette::adapter {

// Registers with libtorch, once; it is off. Its callback ends before an announced op does, since it came first.
void prepare_for_lookups();
void listen_for_lookups(bool on);

}  // namespace vedette::adapter
