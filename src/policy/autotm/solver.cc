// Cbc, where it is there: see solver.h.
#include "policy/autotm/solver.h"

#include <cstddef>
#include <string>

#ifdef VEDETTE_HAVE_CBC
#include <coin/Cbc_C_Interface.h>
#endif

namespace vedette::autotm {

#ifndef VEDETTE_HAVE_CBC

bool solver_present() noexcept { return false; }
std::optional<Solved> solve(const BinaryProgram&, int, double) { return std::nullopt; }

#else

bool solver_present() noexcept { return true; }

std::optional<Solved> solve(const BinaryProgram& program, int most_nodes, double gap) {
  std::vector<int> starts = {0}, rows;
  std::vector<double> values;
  for (const auto& column : program.columns) {
    for (const auto& [row, value] : column) rows.push_back(row), values.push_back(value);
    starts.push_back(static_cast<int>(rows.size()));
  }
  const std::size_t columns = program.cost.size();
  std::vector<double> low(columns), high(columns, 1.0);
  for (auto x = static_cast<std::size_t>(program.binaries); x < columns; ++x) high[x] = 1e12;
  Cbc_Model* model = Cbc_newModel();
  Cbc_loadProblem(model, static_cast<int>(columns), static_cast<int>(program.row_low.size()), starts.data(),
                  rows.data(), values.data(), low.data(), high.data(), program.cost.data(), program.row_low.data(),
                  program.row_high.data());
  for (int x = 0; x < program.binaries; ++x) Cbc_setInteger(model, x);
  Cbc_setParameter(model, "log", "0");
  Cbc_setParameter(model, "threads", "0");
  Cbc_setParameter(model, "maxNodes", std::to_string(most_nodes).c_str());
  Cbc_setParameter(model, "ratioGap", std::to_string(gap).c_str());
  Cbc_solve(model);
  std::optional<Solved> found;
  const bool any = Cbc_numberSavedSolutions(model) > 0 || Cbc_isProvenOptimal(model);
  const double* const x = any ? Cbc_getColSolution(model) : nullptr;
  if (x != nullptr && !Cbc_isProvenInfeasible(model))
    found = {.x = std::vector<double>(x, x + columns),
             .bound = Cbc_getBestPossibleObjValue(model),
             .proven = Cbc_isProvenOptimal(model) != 0};
  Cbc_deleteModel(model);
  return found;
}

#endif

}  // namespace vedette::autotm
