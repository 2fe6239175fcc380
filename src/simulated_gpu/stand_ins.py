#!/usr/bin/env python3
"""stand_ins.py TORCH_LIB OUT COMPILER DRIVER RUNTIME OBJECT...: libraries that those of libtorch need, and that do
nothing.

Each symbol of cuBLAS, cuDNN, NCCL and so on that the installed wheel's libraries name becomes a function that ends the
process with its name, in a library with the SONAME and the symbol versions that the wheel asks for. The objects, which
lie in folders of their targets, become libcudart.so.13, libcublas.so.13, libcupti.so.13 and libnccl.so.2, with such
functions for all that they lack. libcudart.so.13 has them for all functions of CUDA's own at RUNTIME, too, where that
is there. The names are read by nm: nothing of another project is kept here.
"""
import pathlib
import re
import subprocess
import sys

USERS = ["libtorch_cuda.so", "libtorch_nvshmem.so", "libc10_cuda.so", "libcaffe2_nvrtc.so", "libtorch_cpu.so",
         "libtorch_cuda_linalg.so", "libtorch_python.so"]
RUNTIME, BLAS, CUPTI, NCCL = "libcudart.so.13", "libcublas.so.13", "libcupti.so.13", "libnccl.so.2"
DRIVER = "libcuda.so.1"
# Which target's objects become which library.
TARGETS = {"simulated_runtime": RUNTIME, "simulated_blas": BLAS, "simulated_cupti": CUPTI, "simulated_nccl": NCCL}
# A version's name is the SONAME of its library, with one exception.
HOMES = {"NVSHMEM": "libnvshmem_host.so.3"}
# Symbols without versions belong to the library of their prefix; the longest prefix first.
PREFIXES = [("cusparseLt", "libcusparseLt.so.0"), ("nccl", "libnccl.so.2"), ("nvrtc", "libnvrtc.so.13"),
            ("nvJitLink", "libnvJitLink.so.13"), ("cusolver", "libcusolver.so.12"), ("cublas", "libcublas.so.13"),
            ("cu", DRIVER)]
# What the simulated driver lacks and libtorch's compiler of kernels names.
DRIVER_REST = "libsimulated_driver_rest.so"


def symbols(kind, path):
    lines = subprocess.run(["nm", "-D", kind, path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[-1] for line in lines if line]


def needed(path):
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def wanted_by(users):
    """{library: {symbol: version}}, of what is not the system's and not libtorch's own."""
    libraries = {}
    for user in users:
        for name in needed(user):
            if re.match(r"lib(cu|nccl|nv)", name) and not (user.parent / name).exists():
                libraries.setdefault(name, {})
    plain = set()
    for user in users:
        for name in symbols("--undefined-only", user):
            symbol, _, version = name.partition("@")
            version = version.lstrip("@")
            home = HOMES.get(version, version)
            if home in libraries:
                libraries[home][symbol] = version
            elif not version and re.match(r"(cu|nccl|nvrtc|nvJitLink|__cuda)", symbol):
                plain.add(symbol)
    for symbol in plain:
        home = next((home for prefix, home in PREFIXES if symbol.startswith(prefix)), None)
        if home in libraries:
            libraries[home].setdefault(symbol, "")
    return libraries


def source(library, names):
    text = "#include <unistd.h>\nvoid simulated_gpu_end(const char*) __attribute__((weak));\n"
    for name in sorted(names):
        sentence = (f"{name} of {library} is called, which the simulation lacks; "
                    "run this program on a GPU, or give the operator a kernel in src/simulated_gpu/kernels.cc")
        text += (f'void {name}(void) {{ static const char s[] = "{sentence}"; if (simulated_gpu_end) simulated_gpu_end(s); '
                 f"if (write(2, s, sizeof s - 1) < 0) _exit(71); _exit(70); }}\n")
    return text


def version_script(names):
    versions = {}
    for name, version in names.items():
        if version:
            versions.setdefault(version, []).append(name)
    lines = [f"{v} {{ global: {' '.join(n + ';' for n in sorted(of))} }};\n" for v, of in sorted(versions.items())]
    return "".join(lines)


def defined_in(paths):
    lines = subprocess.run(["nm", "--defined-only", *paths], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if " " in line}


def build(compiler, out, library, names, *more):
    base = out / library
    pathlib.Path(f"{base}.c").write_text(source(library, names))
    pathlib.Path(f"{base}.map").write_text(more[0] if more else version_script(names))
    script = [f"-Wl,--version-script={base}.map"] if pathlib.Path(f"{base}.map").stat().st_size else []
    subprocess.run([compiler, "-x", "c", "-w", "-O0", "-fPIC", "-c", f"{base}.c", "-o", f"{base}.o"], check=True)
    subprocess.run([compiler, "-shared", f"{base}.o", *more[1:], "-o", str(base), f"-Wl,-soname,{library}",
                    "-Wl,-rpath,$ORIGIN", *script], check=True)


def main():
    torch, out, compiler, driver, runtime, *objects = map(pathlib.Path, sys.argv[1:])
    libraries = wanted_by([torch / user for user in USERS if (torch / user).exists()])
    have = {line.split("@")[0] for line in symbols("--defined-only", driver)}
    own = {library: [each for each in objects if target in str(each)] for target, library in TARGETS.items()}
    if runtime.exists():
        for name in symbols("--defined-only", runtime):
            symbol, _, version = name.partition("@@")
            if version and symbol != version:
                libraries.setdefault(RUNTIME, {})[symbol] = version
    for library, names in sorted(libraries.items()):
        if library == DRIVER:
            build(compiler, out, DRIVER_REST, {name: version for name, version in names.items() if name not in have})
        elif library in own:
            rest = {name: version for name, version in names.items() if name not in defined_in(own[library])}
            build(compiler, out, library, rest, f"{library} {{ global: *; }};\n", *own[library], driver, "-lstdc++", "-ldl")
        else:
            build(compiler, out, library, names)
    # In the order in which they are loaded; the driver is the first.
    names = [DRIVER, DRIVER_REST, RUNTIME] + sorted(set(libraries) - {DRIVER, RUNTIME})
    (out / "preload").write_text("\n".join(names) + "\n")


main()
