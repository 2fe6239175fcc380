#!/usr/bin/env python3
"""Runs PyTorch's own operator and autograd samples (torch.testing's OpInfo database) in a process whose CPU allocator is vedette's, and
compares every bit of every output and gradient with what the default allocator gives.

    op_bits.py LIBRARY [PARTS]        LIBRARY: the shared library op_allocator; PARTS: run only every PARTS-th operator

Three processes run the same samples with the same seeds: twice with the default allocator, once with vedette's. Where the two default
runs differ from each other the operator is not reproducible (its result holds memory that nobody wrote, addresses or the time) and says
nothing about allocators. Everything else has to be equal, or to be listed in `explained` below with its reason.
Exit status 0: so it is.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import export_torchscript  # noqa: E402  the libraries that stand in for CUDA's

most_samples = 8       # of an operator and type; the first ones are the plainest
most_elements = 1 << 20

# Differences that have a reason other than the allocator being wrong: operator -> why.
explained = {}


class Ours:
    """The guard, and tensors beside the samples that have to be moved all the time: they are checked when an operator is through."""

    def __init__(self, library, folder):
        import torch

        self.torch = torch
        self.library = ctypes.CDLL(library)
        self.library.vedette_owns.argtypes = [ctypes.c_void_p]
        self.library.vedette_moved_bytes.restype = ctypes.c_uint64
        self.library.vedette_begin.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p]
        self.call(self.library.vedette_begin(16 << 20, 64 << 10, f"nvme:{folder}".encode(), b"on-demand"))
        self.ballast = [torch.full((64 << 10,), i, dtype=torch.float32) for i in range(80)]  # 20 MiB
        assert all(self.library.vedette_owns(tensor.data_ptr()) for tensor in self.ballast)
        self.operators = 0

    @staticmethod
    def call(worked):
        if not worked:
            sys.exit("op_bits: the guard failed, see above")

    def begin(self):
        self.call(self.library.vedette_step_begin())

    def end(self):
        tensor = self.ballast[self.operators % len(self.ballast)]
        assert bool((tensor == self.operators % len(self.ballast)).all()), "a byte beside the samples changed"
        self.operators += 1
        self.call(self.library.vedette_step_end())

    def facts(self):
        assert all(bool((tensor == i).all()) for i, tensor in enumerate(self.ballast))
        return {"moved_mib": self.library.vedette_moved_bytes() >> 20}


class Default:
    def begin(self):
        pass

    def end(self):
        pass

    def facts(self):
        return {}


def digest(torch, value, crc):
    """Shapes, types and bits of every tensor in it."""
    if isinstance(value, torch.Tensor):
        crc = zlib.crc32(repr((tuple(value.shape), value.dtype, value.layout)).encode(), crc)
        if value.layout != torch.strided:
            value = value.to_dense()
        if value.is_quantized:
            value = value.int_repr()
        plain = value.detach().resolve_conj().resolve_neg().contiguous().flatten()
        return zlib.crc32(plain.view(torch.uint8).numpy().tobytes(), crc) if plain.numel() else crc
    if isinstance(value, (list, tuple)):
        for each in value:
            crc = digest(torch, each, crc)
        return crc
    return zlib.crc32(repr(value).encode() if isinstance(value, (int, float, bool, complex, str)) else b"", crc)


def tensors_in(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(torch, each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_in(torch, each)]
    return []


def run_sample(torch, op, sample, crc, grads):
    result = op(sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None and grads:
        result = sample.output_process_fn_grad(result)
    crc = digest(torch, result, crc)
    if not grads:
        return crc
    outputs = [t for t in tensors_in(torch, result) if t.requires_grad and t.layout == torch.strided]
    inputs = [t for t in tensors_in(torch, (sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if not outputs or not inputs:
        return crc
    seeds = [torch.randn_like(t.detach()) for t in outputs]
    found = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return digest(torch, [t for t in found if t is not None], crc)


def run_operator(torch, op, dtype, grads):
    """A list with a number for each sample, or the name of the error that it ended in."""
    outcomes = []
    torch.manual_seed(zlib.crc32(f"{op.name}.{op.variant_test_name}.{dtype}".encode()))
    try:
        samples = op.sample_inputs("cpu", dtype, requires_grad=grads)
        for i, sample in enumerate(samples):
            if i == most_samples:
                break
            if sum(t.numel() for t in tensors_in(torch, (sample.input, sample.args, sample.kwargs))) > most_elements:
                continue
            torch.manual_seed(i)
            try:
                outcomes.append(run_sample(torch, op, sample, 0, grads))
            except Exception as error:  # an operator may refuse a sample, in all processes alike
                outcomes.append(type(error).__name__)
    except Exception as error:
        outcomes.append(f"samples: {type(error).__name__}")
    return outcomes


def gradients_check(torch, op):
    """PyTorch's own check of first derivatives, against differences, in double precision."""
    from torch.autograd import gradcheck

    torch.manual_seed(7)
    outcomes = []
    try:
        for i, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=True)):
            if i == 2:
                break
            inputs = [t for t in tensors_in(torch, (sample.input, sample.args)) if t.requires_grad]
            if not inputs or sum(t.numel() for t in inputs) > 300:
                continue
            outcomes.append(check_one(torch, gradcheck, op, sample))
    except Exception as error:
        outcomes.append(type(error).__name__)
    return outcomes


def check_one(torch, gradcheck, op, sample):
    def function(*inputs):
        torch.manual_seed(3)
        result = op.gradcheck_wrapper(op.get_op(), *inputs, **sample.kwargs)
        return sample.output_process_fn_grad(result) if sample.output_process_fn_grad else result

    try:
        return bool(gradcheck(function, (sample.input, *sample.args), fast_mode=True, raise_exception=False,
                              check_batched_grad=False, nondet_tol=op.gradcheck_nondet_tol))
    except Exception as error:
        return type(error).__name__


def work(library, parts, folder, out):
    import warnings

    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    memory = Ours(library, folder) if library != "default" else Default()
    results = {}
    for op in op_db[::parts]:
        types = op.supported_dtypes("cpu")
        memory.begin()
        for dtype in (torch.float32, torch.complex64, torch.int64):
            if dtype not in types:
                continue
            grads = dtype == torch.float32 and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            name = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {str(dtype).removeprefix('torch.')}"
            results[name] = run_operator(torch, op, dtype, grads)
            if grads and op.supports_gradgrad and torch.float64 in types:
                results[f"{name} gradcheck"] = gradients_check(torch, op)
        memory.end()
    pathlib.Path(out).write_text(json.dumps({"results": results, "facts": memory.facts()}))


def start(library, parts, folder, name):
    out = f"{folder}/{name}.json"
    began = time.monotonic()
    # Some samples come out of sets of strings (meshgrid's), whose order is another one in every process that does not
    # fix it.
    command = [sys.executable, __file__, "work", library, str(parts), folder, out]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return json.loads(pathlib.Path(out).read_text())


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "work":
        return work(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    parts = int(sys.argv[2]) if len(sys.argv) == 3 else 1
    with tempfile.TemporaryDirectory(prefix="vedette-op-bits-", dir=".") as folder:
        first = start("default", parts, folder, "default")["results"]
        second = start("default", parts, folder, "default again")["results"]
        told = start(sys.argv[1], parts, folder, "vedette")
    ours = told["results"]
    restless = sorted(name for name in first if first[name] != second[name])
    different = sorted(name for name in first if name not in restless and first[name] != ours.get(name))
    samples = sum(len(outcomes) for outcomes in first.values())
    refused = sum(isinstance(outcome, str) for outcomes in first.values() for outcome in outcomes)
    checked = sum(outcome is True for name, outcomes in ours.items() if name.endswith("gradcheck") for outcome in outcomes)
    print(f"{len(first)} operators and types, {samples} samples ({refused} refused by the operator in all runs), {checked} gradient checks pass")
    print(f"vedette moved {told['facts']['moved_mib']} MiB meanwhile")
    print(f"not reproducible with the default allocator: {', '.join(restless) or 'none'}")
    for name in different:
        reason = explained.get(name.split(" ")[0])
        print(f"different: {name}: {reason or 'NOT EXPLAINED'}\n  default {first[name]}\n  vedette {ours.get(name)}")
    unexplained = [name for name in different if name.split(" ")[0] not in explained]
    print(f"{len(different)} differences, {len(unexplained)} of them not explained")
    return 1 if unexplained or told["facts"]["moved_mib"] == 0 else 0


if __name__ == "__main__":
    export_torchscript.start_again_with_stand_ins()
    sys.exit(main())
