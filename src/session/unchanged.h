// Which fetches of a plan bring bytes that nobody changes before they leave again: what then leaves need not be
// written. Pure.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

// [m]: move m is a fetch, some later move takes a part of it away again (in this step or the next), and no op from the
// one it is due at to the one after which it leaves writes its tensor. O((moves + accesses) log) but for tensors whose
// parts move often.
std::vector<char> unchanged_until_gone(const Trace& trace, const Plan& plan);

}  // namespace vedette
