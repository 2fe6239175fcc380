// What vedette._core has for vedette/_exports.py and vedette/_guard.py: marks, references, sentences.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace vedette::python {

void bind_exports(pybind11::module_& module);

}  // namespace vedette::python
