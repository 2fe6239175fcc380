"""Changes to modules of torch's, made when the program imports them: nothing is imported here for their sake.

Invariant: a module that is not as it is in torch 2.11 to 2.15 stays as it is, and one sentence says what is lost.
"""

import importlib.abc
import importlib.util
import sys
import warnings


def change_on_import(name, change, lost):
    """`change(module)` once the module has run, or now where it has. It raises AttributeError before it has changed anything where
    the module is of another kind; `lost` says then what does not work."""

    def try_to_change(module):
        try:
            change(module)
        except AttributeError as missing:
            warnings.warn(f"vedette: {lost}, because {name} is not as it is in torch 2.11 to 2.15: {missing}", RuntimeWarning, stacklevel=2)

    if name in sys.modules:
        try_to_change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, try_to_change))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; what others find for one module is changed when it has run."""

    def __init__(self, name, change):
        self._name, self._change = name, change
        self._asking_others = False

    def find_spec(self, name, path, target=None):
        if name != self._name or self._asking_others:
            return None
        self._asking_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking_others = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_change(module):
                run(module)
                self._change(module)

            spec.loader.exec_module = run_and_change
        return spec
