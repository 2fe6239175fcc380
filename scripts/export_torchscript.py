#!/usr/bin/env python3
"""Exports one of torchvision's models as TorchScript, with fresh parameters (seed 1) and ten classes: nothing is downloaded.

    .venv/bin/python scripts/export_torchscript.py mobilenet_v3_small mobilenet_v3_small.pt

Then `examples/train --script mobilenet_v3_small.pt --compare` trains it. An existing file is left as it is.

Python's torch loads CUDA libraries that training on the CPU never calls and that scripts/setup.sh leaves out (3 GB). In their
place this script links empty libraries of the same names, whose functions trap, into a folder build/cuda_stand_ins_VERSION, and
starts itself again with them. Where the real ones are installed they are used.
"""
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

site = pathlib.Path(sysconfig.get_paths()["purelib"])
torch_libraries = site / "torch" / "lib"
torch_version = re.search(r"__version__ = '([^'+]+)", (torch_libraries.parent / "version.py").read_text())[1]
stand_ins = pathlib.Path(__file__).resolve().parent.parent / "build" / f"cuda_stand_ins_{torch_version}"
users = [torch_libraries / f"lib{name}.so" for name in ("torch_nvshmem", "torch_cuda", "torch_python")]


def words(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def link(path, source, *options):
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, *options], input=source, check=True, text=True)


def make_stand_ins():
    """A library of each name that is needed and missing, without versions, and one that defines what they would."""
    needed = set()
    for user in users:
        needed |= set(re.findall(r"\(NEEDED\).*\[(lib(?:cu|nccl|nvshmem|nvrtc)[^\]]*)\]", words("readelf", "-d", user)))
    have = {path.name for path in site.glob("nvidia/**/lib*.so.*")}
    undefined = set()
    for user in users:
        undefined |= set(re.findall(r" U ((?:nvshmem|cudnn|cublas|cusparse|cufft|cuFile|curand|nccl|nvrtc)\w*)", words("nm", "-D", user)))
    stand_ins.parent.mkdir(exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(dir=stand_ins.parent))
    made.chmod(0o755)  # tests become other users
    for name in needed - have:
        link(made / name, "", f"-Wl,-soname,{name}")
    link(made / "functions.so", "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in sorted(undefined)))
    try:
        made.rename(stand_ins)
    except OSError:  # somebody else was faster
        pass


def start_again_with_stand_ins():
    if "VEDETTE_STAND_INS" in os.environ or (site / "nvidia" / "cudnn").exists():
        return
    if not stand_ins.exists():
        make_stand_ins()
    environment = dict(os.environ, VEDETTE_STAND_INS="1", LD_LIBRARY_PATH=str(stand_ins), LD_PRELOAD=str(stand_ins / "functions.so"))
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def export(name, path):
    import torch
    import torchvision

    torch.manual_seed(1)
    model = torchvision.models.get_model(name, weights=None, num_classes=10)
    part = f"{path}.{os.getpid()}"
    torch.jit.script(model).save(part)
    os.rename(part, path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if os.path.exists(sys.argv[2]):
        return
    start_again_with_stand_ins()
    export(sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    main()
