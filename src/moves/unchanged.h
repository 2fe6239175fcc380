// Fetches of a plan whose bytes do not change before they leave again: they then leave without a write. Pure.
#pragma once
#include <vector>

#include "vedette/model.h"

namespace vedette {

// [m]: move m is a fetch, and a later move of this step or the next takes a part of it away again. No op from the
// fetch's due op to the op after which the part leaves writes its tensor. O((moves + accesses) log), but for tensors
// whose parts move often.
std::vector<char> unchanged_until_gone(const Trace& trace, const Plan& plan);

}  // namespace vedette
