// The bytes of an operator's result, or of all of them where there are several, by the sizes of its arguments, before
// it runs. A GPU's memory has room for it in one piece then, also where no plan has a place for it. The true result may
// be smaller, or larger where its shape depends on data or the operator is none of libtorch's.
//
// Thread rule: the thread whose operator runs. No tensor's bytes are read.
#pragma once
#include <cstdint>

#include "adapter/torch/operator_table.h"

namespace vedette::adapter {

// In bytes. Of lists it is the sum: cat. Several results are taken to be as large as the operands: their gradients.
std::uint64_t likely_result(const Operator& op, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace vedette::adapter
