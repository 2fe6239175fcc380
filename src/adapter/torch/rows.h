// Rows of a large table that an operator looks up, as parts of the table's memory: so that the rows' pages move, not
// the table. Which rows they are the index tensor says, which is read before the operator runs. Thread rule: any
// thread, between ops.
#pragma once
#include <vector>

#include "adapter/torch/operator_table.h"
#include "vedette/session.h"

namespace c10 {
struct IValue;
}

namespace vedette::adapter {

// Adds the parts of `table` in the rows that `numbers` lists, in order, to `parts`; `numbers` as in Operator::Rows.
// False, and nothing added: the table is small (few chunks), or most of it is touched, or `numbers` is something else
// after all; then the table is an operand like others.
bool add_rows(const c10::IValue& table, const c10::IValue& numbers, bool is_sparse, bool written, Bytes chunk,
              std::vector<Part>& parts);

}  // namespace vedette::adapter
