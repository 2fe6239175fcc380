"""PyTorch's own data parallel engines over gloo and, on simulated GPUs, over NCCL, a guard in each rank: the bits of the same training
without guards, at all, half and a quarter of each rank's memory."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import torch

import unprivileged

steps = 8
width = 192
device = "cpu"  # of a rank


def join_on_gpu():
    """On the rank's own of the GPUs that the process sees, as torchrun's programs do."""
    global device
    torch.set_num_threads(1)
    number = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    torch.cuda.set_device(number)
    device = f"cuda:{number}"
    torch.distributed.init_process_group("nccl")


def gpu_guard(budget):
    import vedette

    return vedette.Guard(budget, fast=device, slow="host")


def make_model(*norms):
    """`norms`: what stands behind each linear layer."""
    torch.manual_seed(1)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(width, width), *[norm(width) for norm in norms], torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).to(device)


def wrap(engine, model):
    """What is called in the place of the model, and its optimizer."""
    if engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.split(":")[0], (torch.distributed.get_world_size(),))
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


def make(engine):
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(make_model(torch.nn.BatchNorm1d)) if engine == "synchronised" else make_model()
    return model, *wrap(engine, model)


def refuses_step_in_backward(optimizer):
    import vedette

    try:
        vedette.step_in_backward(optimizer, lambda: None)
    except vedette.Failure as refused:
        assert "something else waits for the parameters' gradients" in str(refused)
    else:
        raise AssertionError("step_in_backward did not refuse beside a Reducer")


def train(engine, guard=None, made=None):
    """One rank's training: its losses, the bits of what it has of the model, and what its guard moved in the last step. `made` is what
    make() returned before there was a guard."""
    from training import bits

    model, forward, optimizer = made or make(engine)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    generator = torch.Generator().manual_seed(2 + torch.distributed.get_rank())
    losses, moved, faults = [], [], []
    for _ in range(steps):
        before = guard.counters if guard else None
        with guard.step() if guard else contextlib.nullcontext():
            x, y = torch.randn(32, width, generator=generator), torch.randint(0, 10, (32,), generator=generator)
            x, y = x.to(device), y.to(device)
            loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            if engine == "ddp" and not losses and device == "cpu":
                refuses_step_in_backward(optimizer)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x, y
        if guard:
            now = guard.counters
            moved.append(now.bytes_in + now.bytes_out - before.bytes_in - before.bytes_out)
            faults.append(now.faults - before.faults)
    parameters = [bits(getattr(p, "_local_tensor", p).cpu()) for p in (*model.parameters(), *model.buffers())]
    return {"losses": losses, "parameters": parameters, "moved": moved, "faults": faults, "phase": guard.phase if guard else ""}


def leave(place, told):
    with open(os.path.join(place, f"rank{torch.distributed.get_rank()}.json"), "w") as file:
        json.dump(told, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


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
    leave(place, told)


def gpu_rank_main(place, shares, engines):
    """As rank_main(), on a simulated GPU; and with an engine that is made before its guard, with recomputation, and exchanges."""
    import vedette

    join_on_gpu()
    told = {}
    for engine in engines:
        torch.cuda.reset_peak_memory_stats()
        told[engine] = {"plain": train(engine)}
        peak = torch.cuda.max_memory_allocated()
        for share in shares:
            with gpu_guard(int(share * peak)) as guard:
                told[engine][str(share)] = {**train(engine, guard), "peak": peak}
    made = make("ddp")
    with gpu_guard(int(peak / 2)) as guard:
        told["made before"] = {**train("ddp", guard, made), "peak": peak}
    with vedette.Guard(int(peak / 2), fast=device, slow="host", recompute="always") as guard:
        told["recomputed"] = train("ddp", guard)
    told["exchanges"] = {"plain": exchange(), "guarded": exchange(gpu_guard(f"{1024 + 256 * torch.distributed.get_world_size()}KiB"))}
    told["exchanges across steps"] = {"plain": exchange_across_steps(), "guarded": exchange_across_steps(gpu_guard("6MiB"))}
    for kind in ("tensors", "pipeline"):
        torch.cuda.reset_peak_memory_stats()
        told[kind] = {"plain": train_in_parts(kind)}
        peak = torch.cuda.max_memory_allocated()
        with gpu_guard(int(peak / 2)) as guard:
            told[kind]["guarded"] = train_in_parts(kind, guard)
    told["apart"] = synchronised_and_joined()
    told["races"] = ctypes.CDLL(None).simulated_races()
    leave(place, told)


def synchronised_and_joined():
    """How far SyncBatchNorm is from a BatchNorm of all ranks' batches, which differ in size, relative to the largest number: its results,
    gradients and statistics."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    generator, apart = torch.Generator().manual_seed(7), {}
    for name, kind, shape, layout in (("rows", torch.nn.BatchNorm1d, (5,), torch.contiguous_format),
                                      ("images", torch.nn.BatchNorm2d, (5, 4, 3), torch.contiguous_format),
                                      ("channels last", torch.nn.BatchNorm2d, (5, 4, 3), torch.channels_last)):
        torch.manual_seed(3)
        joined = kind(5, momentum=0.3).to(torch.float64)
        torch.nn.init.uniform_(joined.weight)
        torch.nn.init.uniform_(joined.bias)
        synchronised = torch.nn.SyncBatchNorm.convert_sync_batchnorm(kind(5, momentum=0.3).to(device))
        synchronised.load_state_dict(joined.state_dict())
        parts = [3 * torch.randn(4 + 3 * part, *shape, generator=generator) + 2 for part in range(ranks)]
        whole = torch.cat(parts).to(torch.float64).requires_grad_()
        mine = parts[rank].to(device).contiguous(memory_format=layout).requires_grad_()
        result = synchronised(mine)
        result.square().sin().sum().backward()
        expected = joined(whole)
        expected.square().sin().sum().backward()
        for parameter in synchronised.parameters():
            torch.distributed.all_reduce(parameter.grad)
        begin = sum(len(part) for part in parts[:rank])
        own = slice(begin, begin + len(mine))
        for what, a, b in (("result", result, expected[own]), ("input", mine.grad, whole.grad[own]),
                           ("weight", synchronised.weight.grad, joined.weight.grad), ("bias", synchronised.bias.grad, joined.bias.grad),
                           ("mean", synchronised.running_mean, joined.running_mean), ("variance", synchronised.running_var, joined.running_var)):
            apart[f"{name}, {what}"] = ((a.detach().cpu() - b.detach()).abs().max() / b.detach().abs().max()).item()
    return apart


def killed_rank_main(place, shares, engines):
    """The job of which one rank is killed in a collective."""
    join_on_gpu()
    with gpu_guard("4MiB") as guard:
        train("ddp", guard)


def parts_of_a_model(kind):
    """One model on all ranks: each layer's matrices are cut (DTensor's tensor parallelism), or each rank has a half of the layers."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(1)
    blocks = [torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.ReLU(), torch.nn.Linear(4 * width, width)) for _ in range(4)]
    ranks = torch.distributed.get_world_size()
    if kind == "pipeline":
        share = len(blocks) // ranks
        return torch.nn.Sequential(*blocks[torch.distributed.get_rank() * share:][:share]).to(device)
    mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (ranks,))
    cut = {f"{i}.{layer}": how() for i in range(len(blocks)) for layer, how in ((0, ColwiseParallel), (2, RowwiseParallel))}
    return parallelize_module(torch.nn.Sequential(*blocks).to(device), mesh, cut)


def train_in_parts(kind, guard=None):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    from training import bits

    rank, ranks, error = torch.distributed.get_rank(), torch.distributed.get_world_size(), torch.nn.functional.mse_loss
    model, losses = parts_of_a_model(kind), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    if kind == "pipeline":
        schedule = ScheduleGPipe(PipelineStage(model, rank, ranks, torch.device(device)), n_microbatches=4, loss_fn=error)
    for step in range(steps):
        with guard.step() if guard else contextlib.nullcontext():
            x, y = torch.randn(2, 64, width, generator=torch.Generator().manual_seed(step)).to(device).unbind()
            parts = []
            if kind == "tensors":
                parts.append(error(model(x), y))
                parts[0].backward()
            elif rank < ranks - 1:
                schedule.step(*[x][:rank == 0])
            else:
                schedule.step(target=y, losses=parts)
            losses.append([part.item() for part in parts])
            optimizer.step()
            optimizer.zero_grad()
            del x, y, parts
    return {"losses": losses, "parameters": [bits(getattr(p, "_local_tensor", p).cpu()) for p in model.parameters()],
            "out": guard.counters.bytes_out if guard else 0}


def exchange(guard=None):
    """Sums of what goes around among the ranks by each kind of collective, in more than twice the memory that is there."""
    import torch.distributed as dist

    rank, ranks, sums = dist.get_rank(), dist.get_world_size(), []
    with guard or contextlib.nullcontext():
        tensors = [torch.full((1 << 15,), float(rank + i), device=device) for i in range(32)]
        for step in range(6):
            with guard.step() if guard else contextlib.nullcontext():
                works = [dist.all_reduce(t, async_op=True) for t in tensors[:8]]
                for t in tensors[8:16]:
                    t.mul_(0.5)
                for work in works:
                    work.wait()
                came = [torch.empty_like(t) for t in tensors[16:20]]
                works = dist.batch_isend_irecv([dist.P2POp(op, t, (rank + way) % ranks) for sent, received in zip(tensors[16:20], came)
                                                for op, t, way in ((dist.isend, sent, 1), (dist.irecv, received, -1))])
                for t in tensors[20:28]:
                    t.add_(1)
                for work in works:
                    work.wait()
                whole = torch.empty(ranks << 15, device=device)
                gathered = dist.all_gather_into_tensor(whole, tensors[28], async_op=True)
                part = torch.empty(1 << 15, device=device)
                for t in tensors[:16]:  # what was gathered leaves meanwhile
                    t.add_(1)
                gathered.wait()
                dist.reduce_scatter_tensor(part, whole)
                dist.broadcast(tensors[29], src=step % ranks)
                tensors[16:20] = came
                for t in tensors[:8]:
                    t.div_(ranks)
                sums.append([t.sum().item() for t in (*tensors, part)])
                del came, whole, part, works, gathered, work, t
    return sums


def exchange_across_steps(guard=None):
    """Sums of what came: sent in one step, alone or in a group of calls, and waited for after the next one, in which all else moves. One
    rank is late, so that the exchange is under way while the other one's step ends."""
    import torch.distributed as dist

    rank, ranks, sums = dist.get_rank(), dist.get_world_size(), []
    with guard or contextlib.nullcontext():
        others = [torch.full((1 << 18,), float(i), device=device) for i in range(8)]
        for grouped in (False, True):
            works = []
            for step in range(4):
                for work in works:
                    work.wait()
                if works:
                    sums.append(came.sum().item())
                with guard.step() if guard else contextlib.nullcontext():
                    sent = torch.full((1 << 18,), float(10 * rank + step + 1), device=device)
                    came = torch.zeros(1 << 18, device=device)
                    calls = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, came, (rank - 1) % ranks)]
                    if rank == 0 and step == 2:
                        time.sleep(1)
                    if rank % 2 == 1:
                        calls.reverse()
                    works = dist.batch_isend_irecv(calls) if grouped else [call.op(call.tensor, call.peer) for call in calls]
                with guard.step() if guard else contextlib.nullcontext():
                    for each in others + others:
                        each.add_(1)
            for work in works:
                work.wait()
            sums.append(came.sum().item())
        sums += [each.sum().item() for each in others]
    return sums


class DataParallel(unittest.TestCase):
    ranks = 2
    shares = [1, 0.5, 0.25] if "VEDETTE_WHOLE" in os.environ else [1, 0.25]
    phases = ["planned"]
    enter = None  # what the job does before it begins, as subprocess's preexec_fn

    main = rank_main
    engines = ["ddp", "zero", "fsdp2"]
    runner = []
    environment = {}

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o777)
            command = [*cls.runner, sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cls.ranks}",
                       __file__, cls.main.__name__, place, json.dumps(cls.shares), *cls.engines]
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HOME": place, **cls.environment}
            done = subprocess.run(command, env=environment, preexec_fn=cls.enter, cwd="/", capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise AssertionError(done.stderr[-9000:])
            cls.told = [json.load(open(f"{place}/rank{rank}.json")) for rank in range(cls.ranks)]

    def compare(self, engine):
        for rank, told in enumerate(self.told):
            plain = told[engine]["plain"]
            for share in self.shares:
                guarded = told[engine][str(share)]
                self.assertEqual(guarded["losses"], plain["losses"], share)
                self.assertEqual(guarded["parameters"], plain["parameters"], share)
                self.assertIn(guarded["phase"], self.phases, share)
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


class OnGpus(DataParallel):
    """A guard of GPU memory in each rank, over NCCL that the simulated GPUs have."""

    shares = [1, 0.5, 0.3] if "VEDETTE_WHOLE" in os.environ else [0.5, 0.3]
    phases = ["planned", "foreseen"]  # its reducer makes other buckets in its second step
    main = gpu_rank_main
    engines = [*DataParallel.engines, "synchronised"]

    @classmethod
    def setUpClass(cls):
        import vedette

        tree, build = pathlib.Path(__file__).parents[2], pathlib.Path(vedette.__file__).parents[2]
        if not (build / "src/simulated_gpu/lib/preload").exists():
            raise unittest.SkipTest("there is no simulated GPU: build the target simulated_gpu with a libtorch for CUDA")
        cls.runner = [tree / "scripts/with_simulated_gpu"]
        cls.environment = {"VEDETTE_BUILD": str(build), "LD_PRELOAD": "", "SIMULATED_GPU": f"devices={cls.ranks}"}
        super().setUpClass()

    def test_synchronised_batch_norms(self):
        self.compare("synchronised")
        for told in self.told:
            self.assertLess(max(told["apart"].values()), 1e-5, told["apart"])

    def test_an_engine_that_is_made_before_its_guard(self):
        for told in self.told:
            self.assertEqual(told["made before"]["losses"], told["ddp"]["plain"]["losses"])
            self.assertEqual(told["made before"]["parameters"], told["ddp"]["plain"]["parameters"])

    def test_gradients_that_the_reducer_wrote_are_not_recomputed(self):
        for told in self.told:
            self.assertEqual(told["recomputed"]["losses"], told["ddp"]["plain"]["losses"])
            self.assertEqual(told["recomputed"]["parameters"], told["ddp"]["plain"]["parameters"])

    def test_collectives_and_exchanges(self):
        for told in self.told:
            self.assertEqual(told["exchanges"]["guarded"], told["exchanges"]["plain"])

    def test_exchanges_that_last_beyond_a_step(self):
        for told in self.told:
            self.assertEqual(told["exchanges across steps"]["guarded"], told["exchanges across steps"]["plain"])

    def compare_parts(self, kind):
        for told in self.told:
            plain, guarded = told[kind]["plain"], told[kind]["guarded"]
            self.assertEqual((guarded["losses"], guarded["parameters"]), (plain["losses"], plain["parameters"]))
            self.assertGreater(guarded["out"], 0)

    def test_tensor_parallelism(self):
        self.compare_parts("tensors")

    def test_a_pipeline(self):
        self.compare_parts("pipeline")

    def test_a_rank_that_is_killed_ends_the_others(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = set(os.listdir("/dev/shm"))
        jobs = []
        for rank in range(2):
            environment = {**os.environ, **self.environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
                           "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC": "100", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "100"}  # the older name
            if rank == 1:
                environment["SIMULATED_GPU"] += " crash=ncclAllReduce/kernel@5"
            jobs.append(subprocess.Popen([*self.runner, sys.executable, __file__, "killed_rank_main", "", "[]"], env=environment,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        told = [job.communicate(timeout=300)[1] for job in jobs]
        self.assertEqual(jobs[1].returncode, -signal.SIGKILL, told[1][-3000:])
        self.assertNotEqual(jobs[0].returncode, 0)
        self.assertIn("a rank has ended", told[0])
        pages = {f"vedette-{job.pid}" for job in jobs}  # 4 KiB each for `vedette top`, which the next guard removes
        self.assertEqual(set(os.listdir("/dev/shm")) - shared - pages, set())

    def test_nothing_is_a_race(self):
        self.assertEqual([told["races"] for told in self.told], [0] * self.ranks)


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
    mains = {each.__name__: each for each in (rank_main, gpu_rank_main, killed_rank_main)}
    mains[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:])
