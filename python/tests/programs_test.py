"""What Python programs do beside training, under a guard: workers of a DataLoader, numpy, files, shared memory, garbage."""

import contextlib
import gc
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy
import row_programs
import torch
import torch.multiprocessing
import unprivileged
import vedette
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import GPT, Run, chunk, folder, patience, text

mebi = 1 << 20


class Samples(Dataset):
    """Holds a tensor of its own, as data sets in memory do; what is asked for is computed by the worker."""

    def __init__(self):
        self.x = torch.randn(256, 784, generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        made = torch.full((784,), float(i)) / 256  # allocated by the worker
        return made.sin() * 2 + 1, i % 10


class SamplesInMemory(Samples):
    def __getitem__(self, i):
        return self.x[i] * 2, i % 10


@contextlib.contextmanager
def standard_error():
    """What this process and its children write to standard error."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def train(loader, guard=None):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    losses = []
    for _ in range(3):
        for x, y in loader:
            with guard.step() if guard else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
                del loss
            del x, y
    return losses


class RowsOfALargeTensor(unittest.TestCase):
    def test_move_and_the_tensor_does_not(self):
        for program in row_programs.programs:
            plain, _ = row_programs.run(program, "cpu")
            with self.subTest(program.__name__), folder() as slow, vedette.Guard("3584KiB", slow=f"nvme:{slow}", chunk="16KiB") as guard:
                bits, (bytes_in, bytes_out, _) = row_programs.run(program, "cpu", guard)
                print(f"{program.__name__}: a step moves {bytes_in >> 10} KiB in, {bytes_out >> 10} out, of {row_programs.whole >> 10}")
                self.assertTrue(row_programs.equal(bits, plain), "other bits")
                # The weights come, and 64 rows touch at most 64 chunks.
                most = row_programs.weights + row_programs.looked_up * (16 << 10)
                self.assertLessEqual(bytes_in, most)
                self.assertLessEqual(bytes_out, most)


class Workers(unittest.TestCase):
    def losses(self, samples, guarded, **loader):
        if not guarded:
            return train(DataLoader(samples(), 64, **loader))
        with folder() as slow, vedette.Guard("6MiB", slow=f"nvme:{slow}", chunk=chunk) as guard:
            losses = train(DataLoader(samples(), 64, **loader), guard)
            self.assertGreater(guard.counters.bytes_in, 0)
            return losses

    def test_by_spawn(self):
        plain = self.losses(Samples, False)
        self.assertEqual(self.losses(Samples, True, num_workers=2, multiprocessing_context="spawn", timeout=patience), plain)

    def test_by_fork(self):
        plain = self.losses(Samples, False)
        self.assertEqual(self.losses(Samples, True, num_workers=2, multiprocessing_context="fork", timeout=patience), plain)
        self.assertEqual(self.losses(Samples, True, num_workers=2, multiprocessing_context="fork", timeout=patience,
                                     persistent_workers=True), plain)

    def test_by_fork_end_with_a_sentence_where_they_touch_their_parents_tensors(self):
        with folder() as slow, vedette.Guard("6MiB", slow=f"nvme:{slow}", chunk=chunk) as guard, standard_error() as said:
            loader = DataLoader(SamplesInMemory(), 64, num_workers=1, multiprocessing_context="fork", timeout=patience)
            with self.assertRaisesRegex(RuntimeError, "is killed by signal|exited unexpectedly"):
                train(loader, guard)
            said.seek(0)
            self.assertIn(b"touched a tensor of its parent's guard", said.read())

    def test_by_fork_have_the_data_that_was_made_before_the_guard(self):
        samples = SamplesInMemory()
        plain = train(DataLoader(samples, 64))
        with folder() as slow, vedette.Guard("6MiB", slow=f"nvme:{slow}", chunk=chunk) as guard:
            loader = DataLoader(samples, 64, num_workers=2, multiprocessing_context="fork", timeout=patience)
            self.assertEqual(train(loader, guard), plain)

    def test_that_are_forked_may_open_a_guard_of_their_own(self):
        with folder() as slow, vedette.Guard("6MiB", slow=f"nvme:{slow}", chunk=chunk) as guard:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    torch.set_num_threads(1)  # of OpenMP's threads it has none, and would wait for them, without a guard as well
                    try:
                        with guard.step():
                            pass
                    except vedette.Failure:
                        with vedette.Guard("6MiB", slow="host", chunk=chunk) as own, own.step():
                            status = 0 if torch.ones(mebi).sum().item() == mebi else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            with guard.step():
                self.assertEqual(torch.ones(mebi).sum().item(), mebi)


class Habits(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name
        guard = vedette.Guard("6MiB", slow=f"nvme:{self.place}", chunk=chunk)
        self.addCleanup(guard.close)
        self.guard = guard

    def ballast(self):
        """Pushes everything else out."""
        return [torch.full((mebi // 4,), float(i)) for i in range(10)]

    def test_numpy_reads_and_writes_what_is_away(self):
        tensor = torch.arange(mebi // 4, dtype=torch.float32)
        array = tensor.numpy()
        ballast = self.ballast()
        before = self.guard.counters.bytes_in
        self.assertEqual(float(array.astype(numpy.float64).sum()), (mebi // 4 - 1) * (mebi // 4) / 2)
        self.assertGreater(self.guard.counters.bytes_in, before)
        array[7] = -1.0
        more = [one + 1 for one in ballast]
        self.assertEqual(tensor[7].item(), -1.0)
        self.assertEqual([one[0].item() for one in more], list(range(1, 11)))
        path = os.path.join(self.place, "array")
        with self.guard.resident(tensor):  # write(2) without userfaultfd needs it
            array.tofile(path)
        self.assertTrue((numpy.fromfile(path, dtype=numpy.float32) == array).all())
        self.assertTrue(torch.equal(torch.from_numpy(array.copy()), tensor))

    def test_save_and_load(self):
        plain = Run(GPT, text).steps(6)
        run = Run(GPT, text, guard=lambda: self.guard).steps(4)
        path = os.path.join(self.place, "checkpoint.pt")
        generator, torchs = run.generator.get_state(), torch.get_rng_state()
        torch.save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}, path)
        losses = run.losses
        del run
        for mapped, assign in ((False, False), (True, False), (True, True)):
            saved = torch.load(path, mmap=mapped)
            again = Run(GPT, text, guard=lambda: self.guard)
            again.model.load_state_dict(saved["model"], assign=assign)
            again.optimizer = torch.optim.Adam(again.model.parameters(), lr=1e-3)
            again.optimizer.load_state_dict(saved["optimizer"])
            del saved
            again.watch()
            self.assertTrue(all(vedette.owns(parameter) for parameter in again.model.parameters()))
            again.generator.set_state(generator)
            torch.set_rng_state(torchs)
            again.steps(2)
            self.assertEqual(losses + again.losses, plain.losses)
            self.assertEqual(again.state(), plain.state())
            del again

    def test_share_memory_leaves_the_arena_with_the_same_numbers(self):
        tensor = torch.randn(mebi // 4)
        wanted = tensor.sum().item()
        tensor.share_memory_()
        self.assertFalse(vedette.owns(tensor))
        self.assertEqual(tensor.sum().item(), wanted)
        context = torch.multiprocessing.get_context("spawn")
        queue = context.Queue()
        sent = torch.randn(mebi // 4)
        queue.put(sent)
        self.assertTrue(torch.equal(queue.get(timeout=patience), sent))
        child = context.Process(target=write_one, args=(tensor,))
        child.start()
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        self.assertEqual(tensor[0].item(), 5.0)

    def test_cycles_that_are_collected_in_a_step_change_nothing(self):
        plain = Run(GPT, text).steps(10)
        gc.disable()
        self.addCleanup(gc.enable)
        run = Run(GPT, text, guard=lambda: self.guard)

        class Node:
            pass

        for step in range(10):
            node = Node()
            node.itself, node.tensor = node, torch.randn(mebi // 8, generator=torch.Generator().manual_seed(step))
            with self.guard.step():
                run.one_step()
                if step % 3 == 2:
                    gc.collect()
        self.assertEqual(run.losses, plain.losses)
        self.assertEqual(run.state(), plain.state())
        self.assertEqual(self.guard.phase, "planned")

    def test_meta_modules_get_memory_in_the_arena(self):
        with torch.device("meta"):
            layer = nn.Linear(64, 64)
        self.guard.watch(layer)  # nothing there yet
        layer = layer.to_empty(device="cpu")
        self.assertTrue(vedette.owns(layer.weight))


def save_and_load_what_is_away(place):
    """In a process of its own, where system calls into memory that is away fail."""
    with vedette.Guard("4MiB", slow=f"nvme:{place}", chunk=chunk) as guard:
        assert not guard.mechanism.startswith("userfaultfd, "), guard.mechanism
        tensors = {"large": torch.arange(2 * mebi, dtype=torch.float32)}  # larger than the budget
        tensors |= {str(i): torch.full((mebi // 4,), float(i)) for i in range(6)}
        tensors["view"] = tensors["3"][7:9]
        path = os.path.join(place, "checkpoint.pt")
        for mapped in (False, True):
            torch.save(tensors, path)
            loaded = torch.load(path, mmap=mapped)
            assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
            assert loaded["view"].untyped_storage().data_ptr() == loaded["3"].untyped_storage().data_ptr()
            assert mapped or all(vedette.owns(tensor) for tensor in loaded.values())
            del loaded
        with open(path, "wb") as file:
            torch.save(tensors, file)
        with open(path, "rb") as file:
            assert torch.equal(torch.load(file)["large"], tensors["large"])
    torch.save(tensors, path)  # they lie in the arena yet
    loaded = torch.load(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items()) and not vedette.owns(loaded["large"])
    print("the same numbers")


class WhereSystemCallsFail(unittest.TestCase):
    def save_and_load(self, enter):
        if reason := unprivileged.reason_not_to():
            self.skipTest(reason)
        with folder() as place:
            os.chmod(place, 0o777)
            script = f"import programs_test; programs_test.save_and_load_what_is_away({place!r})"
            done = subprocess.run([sys.executable, "-c", script], preexec_fn=enter, cwd="/", capture_output=True, text=True, timeout=patience)
            self.assertEqual(done.stdout, "the same numbers\n", done.stderr[-3000:])

    def test_as_nobody_files_are_saved_and_loaded(self):
        self.save_and_load(unprivileged.become_nobody)

    def test_without_userfaultfd_files_are_saved_and_loaded(self):
        self.save_and_load(unprivileged.become_nobody_without_userfaultfd)


class OtherLibraries(unittest.TestCase):
    """Memory that numpy or another library has, too, is exchanged by nothing."""

    def guard(self, said, budget="6MiB"):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        guard = vedette.Guard(budget, slow=f"nvme:{place.name}", chunk=chunk, on_message=said.append)
        self.addCleanup(guard.close)
        return guard

    def test_read_and_write_what_they_had_before_the_guard(self):
        exports = {
            "numpy()": lambda tensor: tensor.numpy(),
            "a part": lambda tensor: tensor[7:9].numpy(),
            "numpy.asarray": numpy.asarray,
            "numpy.from_dlpack": numpy.from_dlpack,
            "torch.from_dlpack": torch.from_dlpack,
            "a capsule": torch.utils.dlpack.to_dlpack,
            "a capsule of an alias": lambda tensor: torch.utils.dlpack.to_dlpack(tensor.detach()),
        }
        for how, export in exports.items():
            for needs_gradient in (True, False):
                with self.subTest(how, needs_gradient=needs_gradient):
                    layer, said = nn.Linear(256, 256), []
                    layer.weight.requires_grad_(needs_gradient)
                    exported = export(layer.weight.detach() if needs_gradient else layer.weight.data if how == "a part" else
                                      layer.weight)
                    at, follows = layer.weight.data_ptr(), layer.weight.detach()[3]
                    with self.guard(said) as guard:
                        guard.watch(layer)
                        self.assertEqual((layer.weight.data_ptr(), vedette.owns(layer.bias)), (at, True))
                        ballast = [torch.full((256, 256), 7.0) for _ in range(20)]
                        with torch.no_grad():
                            layer.weight.fill_(5.0)
                        guard.bring_home()
                        self.assertEqual((layer.weight.data_ptr(), vedette.owns(layer.bias)), (at, False))
                    said = [sentence for sentence in said if not sentence.startswith("tensors of earlier sessions")]
                    self.assertEqual(len(said), 1, said)
                    self.assertRegex(said[0], "^Tensor 'Linear.weight' is in use by another library, too .* outside the budget: call")
                    self.assertEqual(follows.sum().item(), 5.0 * 256)
                    if not how.startswith("a capsule"):
                        values = numpy.asarray(exported)
                        self.assertTrue((values == 5.0).all())
                        values[:] = 2.0
                        self.assertEqual(layer.weight[7].sum().item(), 2.0 * 256)
                    del exported, ballast, layer, follows

    def test_read_what_they_had_before_vedette_was_imported(self):
        script = (
            "import numpy, torch\n"
            "exports = [lambda t: t.numpy(), numpy.from_dlpack, lambda t: numpy.from_dlpack(t.detach()), lambda t: t[3:5].numpy()]\n"
            "layers = [torch.nn.Linear(256, 256, bias=False).requires_grad_(False) for _ in range(6)]\n"
            "views = [export(layer.weight) for export, layer in zip(exports, layers)]\n"
            "own, again = layers[4].weight.view(-1), layers[4].weight.detach().t()\n"
            "import vedette\n"
            "said = []\n"
            "with vedette.Guard('6MiB', slow='host', chunk='64KiB', on_message=said.append) as guard:\n"
            "    guard.watch(torch.nn.Sequential(*layers))\n"
            "    junk = [numpy.full((256, 256), 7.0, dtype=numpy.float32) for _ in range(20)]\n"
            "    [layer.weight.fill_(i) for i, layer in enumerate(layers)]\n"
            "    print([float(view.mean()) for view in views], [vedette.owns(layer.weight) for layer in layers])\n"
            "    print(own.mean().item(), again.mean().item(), len(said), said[0])\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=patience)
        self.assertEqual(done.stderr, "")
        first, second = done.stdout.splitlines()
        self.assertEqual(first, "[0.0, 1.0, 2.0, 3.0] [False, False, False, False, True, True]")
        self.assertRegex(second, r"^4.0 4.0 1 4 tensors \(1.0 MiB in all\), the first '0.weight', are in use by another library")

    def test_read_what_they_have_of_the_arena_after_bring_home_and_close(self):
        said, layers = [], nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(4)])
        with self.guard(said) as guard:
            guard.watch(layers)
            views = [layers[0].weight.detach().numpy(), numpy.from_dlpack(layers[1].weight.detach()),
                     layers[2].weight.detach().numpy()]
            with torch.no_grad():
                for i, layer in enumerate(layers):
                    layer.weight.fill_(float(i))
            del views[2]  # an array that is gone
            guard.bring_home()
            self.assertEqual([vedette.owns(layer.weight) for layer in layers], [True, True, False, False])
            self.assertRegex(said[-1], "^2 tensors .* the first '[01].weight', are in use by another library, too .*stay in the guard")
            ballast = [torch.full((256, 256), 7.0) for _ in range(40)]
            self.assertEqual([float(view.mean()) for view in views], [0.0, 1.0])
            del ballast
        del layers
        gc.collect()
        with self.guard([]):
            ballast = [torch.full((256, 256), 7.0) for _ in range(40)]
            self.assertEqual([float(view.mean()) for view in views], [0.0, 1.0])
            del ballast

    def test_read_parts_of_a_mapped_file(self):
        with folder() as place:
            path = os.path.join(place, "weights")
            torch.save({"a": torch.full((256, 256), 1.0), "b": torch.full((256, 256), 2.0)}, path)
            saved = torch.load(path, mmap=True)
            view = saved["a"].numpy()
            said = []
            with self.guard(said) as guard:
                for name, tensor in saved.items():
                    guard.watch(tensor, name)
                saved["a"].add_(1)
                self.assertEqual(float(view.mean()), 2.0)
            self.assertRegex(said[-1], "in use by another library")


def write_one(tensor):
    tensor[0] = 5.0


class GettingStarted(unittest.TestCase):
    """The program and the commands of docs/getting-started.md, as a reader types them."""

    def test_its_commands_say_what_the_page_says_that_they_say(self):
        page = (pathlib.Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()
        block = {kind: re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "sh", "text")}
        commands = block["sh"][0].splitlines()
        self.assertEqual((len(block["python"]), len(commands), len(block["text"])), (1, 3, 3))
        with folder() as place:
            (pathlib.Path(place) / "train.py").write_text(block["python"][0])
            for command, shown in zip(commands, block["text"]):
                done = subprocess.run(command.replace("python ", f"{sys.executable} "), shell=True, cwd=place, capture_output=True, text=True,
                                      timeout=patience)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = done.stdout + done.stderr
                for line in shown.splitlines():
                    if line.startswith("What to change"):  # what it advises is the machine's
                        break
                    if not line.strip()[0].isdigit():  # and so are figures
                        words = re.split(r"[:\d]|  +", line.removeprefix("vedette: ").strip())
                        self.assertIn(next(each for each in words if each.strip()), said)


if __name__ == "__main__":
    unittest.main()
