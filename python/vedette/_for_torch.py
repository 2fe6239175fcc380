"""The compiled module of this package for the torch that is installed.

A folder for_torch_2_11 beside this file has what was compiled for torch 2.11, and so on; a package may have several. Invariant: a
module for another minor version than torch's is never loaded, since its layouts are others under the same names.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import pathlib
import sys

_here = pathlib.Path(__file__).parent
_oldest = [2, 11]  # minor version of torch that vedette can be built for


def _file(folder):
    return next((folder / f"_core{end}" for end in importlib.machinery.EXTENSION_SUFFIXES if (folder / f"_core{end}").exists()), None)


def versions():
    """The minor versions of torch that there is a module for, oldest first: ["2.11", "2.15"]."""
    found = [folder.name.removeprefix("for_torch_").split("_") for folder in _here.glob("for_torch_*") if _file(folder)]
    return [".".join(numbers) for numbers in sorted(found, key=lambda numbers: [int(number) for number in numbers])]


def _minor(torch_version):
    return ".".join(torch_version.split(".")[:2])


def _in_words(all_versions):
    return " and ".join(filter(None, [", ".join(all_versions[:-1]), all_versions[-1]])) if all_versions else "none"


def refusal():
    """What `import vedette` refuses, as a sentence; None where the installed torch is one that there is a module for."""
    built_for = versions()
    wanted = f"torch {_in_words(built_for)}"
    remedy = f"pip install 'torch=={(built_for or ['2.11'])[-1]}.*'"
    try:
        import torch
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        return f"vedette needs {wanted}, and no torch is installed: {remedy}."
    if _minor(torch.__version__) in built_for:
        return None
    installed = torch.__version__.split("+")[0]
    other = f", or make the package for that one in a checkout of vedette: scripts/wheel.sh --torch {installed}"
    if [int(number) for number in _minor(installed).split(".")] < _oldest:
        other = ""
    return f"vedette was built for {wanted}, and torch {torch.__version__} is installed: {remedy}{other}."


def load(package):
    """Makes the module `package`._core; refusal() has said None."""
    import torch

    file = _file(_here / f"for_torch_{_minor(torch.__version__).replace('.', '_')}")
    name = f"{package}._core"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    setattr(sys.modules[package], "_core", module)


def sentence():
    """For the command's doctor, which imports no torch."""
    try:
        installed = f"torch {importlib.metadata.version('torch')} is installed"
    except importlib.metadata.PackageNotFoundError:
        installed = "no torch is installed"
    return f"the Python package was built for torch {_in_words(versions())}; {installed}"
