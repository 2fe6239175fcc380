"""PyTorch's own data parallel engines over gloo, a guard in each rank: the bits of the same training without guards, at all, half and a
quarter of each rank's memory."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch

import unprivileged

steps = 8
width = 192


def make_model():
    torch.manual_seed(1)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


def wrap(engine, model):
    """What is called in the place of the model, and its optimizer."""
    if engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.Adam(model.parameters(), lr=1e-3)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.25)
    if engine == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=1e-3)
    return wrapped, torch.optim.Adam(wrapped.parameters(), lr=1e-3)


def refuses_step_in_backward(optimizer):
    import vedette

    try:
        vedette.step_in_backward(optimizer, lambda: None)
    except vedette.Failure as refused:
        assert "something else waits for the parameters' gradients" in str(refused)
    else:
        raise AssertionError("step_in_backward did not refuse beside a Reducer")


def train(engine, guard=None):
    """One rank's training: its losses, the bits of what it has of the model, and what its guard moved in the last step."""
    from training import bits

    model = make_model()
    forward, optimizer = wrap(engine, model)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    generator = torch.Generator().manual_seed(2 + torch.distributed.get_rank())
    losses, moved, faults = [], [], []
    for _ in range(steps):
        before = guard.counters if guard else None
        with guard.step() if guard else contextlib.nullcontext():
            x, y = torch.randn(32, width, generator=generator), torch.randint(0, 10, (32,), generator=generator)
            loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            if engine == "ddp" and not losses:
                refuses_step_in_backward(optimizer)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x, y
        if guard:
            now = guard.counters
            moved.append(now.bytes_in + now.bytes_out - before.bytes_in - before.bytes_out)
            faults.append(now.faults - before.faults)
    parameters = [bits(getattr(p, "_local_tensor", p)) for p in model.parameters()]
    return {"losses": losses, "parameters": parameters, "moved": moved, "faults": faults, "phase": guard.phase if guard else ""}


def rank_main(place, shares, engines):
    """All trainings of one rank, into a file."""
    import gc

    import vedette
    from training import chunk, folder

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    told = {}
    for engine in engines:
        told[engine] = {"plain": train(engine)}
    for engine in engines:
        with vedette.Guard("256MiB", slow="host", chunk=chunk, policy="on-demand") as guard:
            train(engine, guard)
            peak = guard.counters.peak_bytes
        for share in shares:
            gc.collect()
            with folder() as slow, vedette.Guard(int(share * peak), slow=f"nvme:{slow}", chunk=chunk) as guard:
                told[engine][str(share)] = {**train(engine, guard), "peak": peak, "mechanism": guard.mechanism}
    with open(os.path.join(place, f"rank{torch.distributed.get_rank()}.json"), "w") as file:
        json.dump(told, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


class DataParallel(unittest.TestCase):
    ranks = 2
    shares = [1, 0.5, 0.25] if "VEDETTE_WHOLE" in os.environ else [1, 0.25]
    enter = None  # what the job does before it begins, as subprocess's preexec_fn

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o777)
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cls.ranks}", __file__,
                       place, json.dumps(cls.shares), "ddp", "zero", "fsdp2"]
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HOME": place}
            done = subprocess.run(command, env=environment, preexec_fn=cls.enter, cwd="/", capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise AssertionError(done.stderr[-3000:])
            cls.told = [json.load(open(f"{place}/rank{rank}.json")) for rank in range(cls.ranks)]

    def compare(self, engine):
        for rank, told in enumerate(self.told):
            plain = told[engine]["plain"]
            for share in self.shares:
                guarded = told[engine][str(share)]
                self.assertEqual(guarded["losses"], plain["losses"], share)
                self.assertEqual(guarded["parameters"], plain["parameters"], share)
                self.assertEqual(guarded["phase"], "planned", share)
                if rank == 0:
                    print(f"{engine}, {self.ranks} ranks, {share:.0%} of {guarded['peak'] / 2**20:.1f} MiB: {guarded['phase']}, MiB moved in "
                          f"the last step {guarded['moved'][-1] / 2**20:.1f}, faults of each step {guarded['faults']}", flush=True)
            self.assertGreater(sum(told[engine][str(self.shares[-1])]["moved"]), 0)
        losses = [told[engine]["plain"]["losses"] for told in self.told]
        self.assertEqual(len({tuple(each) for each in losses}), self.ranks, "ranks train on different batches")
        if engine != "fsdp2":  # whose ranks have different parts
            for told in self.told:
                self.assertEqual(told[engine]["plain"]["parameters"], self.told[0][engine]["plain"]["parameters"])

    def test_distributed_data_parallel(self):
        self.compare("ddp")

    def test_zero_redundancy_optimizer(self):
        self.compare("zero")

    def test_fsdp2(self):
        self.compare("fsdp2")


class Unprivileged:
    """System calls into memory that is away fail here: gloo's threads find what they send resident."""

    shares = [0.25]

    @classmethod
    def setUpClass(cls):
        if reason := unprivileged.reason_not_to():
            raise unittest.SkipTest(reason)
        super().setUpClass()

    def test_is_what_it_claims(self):
        for told in self.told:
            self.assertIn(self.mechanism, told["ddp"]["0.25"]["mechanism"])


class AsNobody(Unprivileged, DataParallel):
    enter = staticmethod(unprivileged.become_nobody)
    mechanism = "userfaultfd (user mode only)"


if __name__ == "__main__":
    rank_main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
