// Which session an address belongs to, for ever: tensors outlive the session that gave them birth, so its state stays
// until the last of them is gone. This is the library's only global, for the sake of libtorch's deleters, which get an
// address and nothing else.
#pragma once
#include "session/state.h"

namespace vedette::detail {

SessionState* owner_of(const void* memory) noexcept;  // nullptr: nobody's; lock free
bool session_is_open() noexcept;
Result<SessionState*> register_session(std::unique_ptr<SessionState> state);  // fails while another one is open
void close_session(SessionState* state) noexcept;  // its arena goes on paging while tensors live

}  // namespace vedette::detail
