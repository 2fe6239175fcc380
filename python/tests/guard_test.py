"""What a guard in Python does besides training: options, words of failures, opening and closing, the command-line tool, the GIL."""

import ast
import collections
import concurrent.futures
import contextlib
import gc
import importlib
import inspect
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock
import weakref
import xml.dom.minidom

import numpy
import torch
import vedette
from training import GPT, ResNet, Run, chunk, folder, images, patience, text
from vedette import _shown
from vedette._sizes import budget_of, bytes_of

package = pathlib.Path(vedette.__file__).parent


def small_guard(budget="8MiB", **options):
    return vedette.Guard(budget, **{"slow": "host", "chunk": chunk, **options})


class Sizes(unittest.TestCase):
    def test_are_those_of_the_command_line(self):
        for size, wanted in {"500MiB": 500 << 20, "2GiB": 2 << 30, "1.5 GB": 1500000000, "7": 7, "64KiB": 65536, 12: 12}.items():
            self.assertEqual(bytes_of("x", size), wanted)
        self.assertEqual(budget_of("25%"), (0, 0.25))
        self.assertEqual(budget_of(0.25), (0, 0.25))
        self.assertEqual(budget_of(None), (0, 0.0))

    def test_that_are_none_are_refused_with_the_options_name(self):
        for size in ("", "2 gigs", "-1MiB", "0", "nan%", "0%", "101%", 0, -5, 0.0, 1.5, "1e30GiB", "0.1"):
            with self.assertRaisesRegex(ValueError, "^fast_memory: "):
                vedette.Guard(size)
        for size in (True, [1], b"2GiB"):
            with self.assertRaisesRegex(TypeError, "^fast_memory: "):
                vedette.Guard(size)
        with self.assertRaisesRegex(ValueError, "^chunk: 'big' is no size"):
            vedette.Guard("8MiB", chunk="big")
        with self.assertRaisesRegex(ValueError, "^table_memory: 'big' is no size"):
            vedette.Guard("8MiB", fast="gpu:0", table_memory="big")

    def test_that_are_no_times_are_refused(self):
        for time in (-1, 1e9, float("nan")):
            with self.assertRaisesRegex(ValueError, "^fault_us: .* is no time"):
                vedette.Guard("8MiB", fault_us=time)
        for time in (True, "fast"):
            with self.assertRaisesRegex(TypeError, "^fault_us: .* is no time"):
                vedette.Guard("8MiB", fault_us=time)
        small_guard(fault_us=12.5).close()


class Options(unittest.TestCase):
    def test_of_the_wrong_type_are_refused_with_their_names(self):
        wrong = [(dict(slow=None), "slow: None is no slow tier"), (dict(slow=5), "slow: 5 is no slow tier"),
                 (dict(recompute=True), "recompute: True is no word; write 'off', 'planned' or 'always'"),
                 (dict(policy=None), "policy: None is no word"), (dict(profile=1), "profile: 1 is no word"),
                 (dict(tracker=False), "tracker: False is no word"), (dict(fast=0), "fast: 0 is no word; write 'dram' or 'gpu:0'"),
                 (dict(warmup_steps="1"), "warmup_steps: '1' is no whole number"), (dict(warmup_steps=True), "warmup_steps: True"),
                 (dict(seed=1.5), "seed: 1.5 is no whole number"), (dict(ranks=None), "ranks: None is no whole number"),
                 (dict(interference_percent="5"), "interference_percent: '5' is no whole number"),
                 (dict(record=True), "record: True is no path"), (dict(on_message="print"), "on_message: 'print' cannot be called")]
        for options, sentence in wrong:
            with self.subTest(**options), self.assertRaisesRegex(TypeError, "^" + re.escape(sentence)):
                vedette.Guard("8MiB", **options)
        for options in (dict(warmup_steps=-1), dict(seed=-1), dict(ranks=1 << 40)):
            with self.subTest(**options), self.assertRaisesRegex(ValueError, "^[a-z_]+: .* is out of range; write a whole number"):
                vedette.Guard("8MiB", **options)

    def test_take_paths(self):
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder) / "run.vedette"
            small_guard(slow=pathlib.Path(folder), record=run).close()
            self.assertTrue(run.exists())
        with self.assertRaisesRegex(vedette.Failure, "did you mean 'nvme:/data'"):
            small_guard(slow="/data")

    @unittest.skipUnless(os.path.ismount("/dev/shm"), "no tmpfs is mounted at /dev/shm")
    def test_say_where_a_slow_tier_is_memory(self):
        said = []
        small_guard(slow="nvme:/dev/shm", on_message=said.append).close()
        self.assertEqual(len([each for each in said if "lies in a tmpfs, which is memory itself" in each]), 1, said)


def run(program, **environment):
    """What a program writes to its two outputs."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=120)
    return done.stdout, done.stderr, done.returncode


_LOOP = """
    import logging, torch, vedette
    LOGGING
    torch.manual_seed(0)
    with vedette.Guard("8MiB", slow="host", chunk="64KiB"OPTIONS) as guard:
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)])
        guard.watch(model)
        for _ in range(6):
            with guard.step():
                model(torch.ones(64, 512)).sum().backward()
        print(guard.phase, float(model[0].weight.grad.sum()))
"""


class SignsOfLife(unittest.TestCase):
    def loop(self, logging="", options="", **environment):
        out, err, status = run(_LOOP.replace("LOGGING", logging).replace("OPTIONS", options), **environment)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"^(planned|foreseen|off) [-0-9.e+]+\n$")
        return out.split()[1], err.splitlines()

    def test_are_a_line_of_the_first_plan_and_one_of_the_end(self):
        _, lines = self.loop()
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[0], "^vedette: planned at step [23]: a step needs .* MiB are fetched")
        self.assertRegex(lines[1], "^vedette: 6 steps: [1-5] planned, ")

    def test_are_asked_for_elsewhere_or_not_at_all(self):
        self.assertEqual(self.loop(options=", verbose=False")[1], [])
        self.assertEqual(self.loop(options=", on_message=repr")[1], [])
        self.assertEqual(self.loop(RANK="1", WORLD_SIZE="2")[1], [])
        self.assertEqual(self.loop(logging="logging.basicConfig()")[1], [])
        lines = self.loop(logging="logging.basicConfig(level=logging.INFO)")[1]
        self.assertEqual([" ".join(line.split()[:2]) for line in lines], ["INFO:vedette:planned at", "INFO:vedette:6 steps:"])

    def test_say_that_a_guard_is_switched_off_from_outside(self):
        plain, lines = self.loop(options=", enabled=False")
        self.assertEqual(lines, [])
        self.assertEqual(self.loop(VEDETTE_OFF="1"), (plain, ["vedette: VEDETTE_OFF is set: this guard does nothing"]))
        self.assertEqual(self.loop()[0], plain)


class Interactive(unittest.TestCase):
    def test_a_cell_that_is_run_again_replaces_its_guard(self):
        cells = """
            import sys, vedette
            sys.ps1 = ">>> "
            said = []
            cell = "guard = vedette.Guard('8MiB', slow='host', chunk='64KiB', on_message=said.append)"
            exec(cell, globals())
            exec(cell, globals())
            print(said)
            kept = guard
            exec(cell, globals())
            print(guard is kept, guard.budget)
            kept.close()
            print(guard.budget)
            vedette.current_guard().close()
            print(guard.is_closed, vedette.current_guard())
        """
        out, err, status = run(cells)
        self.assertEqual(status, 0, err)
        self.assertEqual(out.splitlines(), ["['another guard is opened, so the one that guard names is closed']",
                                            "False 16777216", "8388608", "True None"])


class Documentation(unittest.TestCase):
    def test_is_there_at_run_time(self):
        self.assertIn("A budget of fast memory", vedette.Guard.__doc__)
        self.assertIn("fast_memory: the budget in bytes", vedette.Guard.__init__.__doc__)
        self.assertIn("Replaces `backward()", vedette.step_in_backward.__doc__)
        self.assertEqual(vedette.Counters.bytes_in.__doc__, "Fetched from the slow tier.")
        for name in vedette.__all__:
            self.assertTrue(getattr(vedette, name).__doc__, name)
            if name == "Guard":
                undocumented = [each for each, what in vars(vedette.Guard).items()
                                if not each.startswith("_") and not what.__doc__ and each not in ("is_closed",)]
                self.assertEqual(undocumented, [])

    def test_counters_show_their_numbers(self):
        with small_guard() as guard:
            self.assertRegex(repr(guard.counters), r"^Counters\(bytes_in=0, .*steps=0, ops=\d+(, \w+=\d+)*\)$")
            self.assertEqual(guard.progress, {"stall_ms": 0.0, "moved_mib": 0.0, "phase": "warm-up"})


class Shown(unittest.TestCase):
    def test_a_notebook_shows_a_guard_and_its_counters_as_small_tables(self):
        with small_guard() as guard:
            parameter = torch.nn.Parameter(torch.ones(1000, 1000))
            with guard.step():
                (parameter * 2).sum().backward()
            shown, counters = guard._repr_html_(), guard.counters._repr_html_()
            self.assertRegex(shown, r"<caption.*vedette guard</caption>")
            for part in ("phase", "warm-up", f"of {guard.budget / (1 << 20):.1f} MiB", "stalls", "faults"):
                self.assertIn(part, shown)
            self.assertNotIn("GPU", shown)
            self.assertIn(">steps<", counters)
            self.assertRegex(counters, r">peak_bytes</th><td[^>]*>[0-9.]+ MiB<")
            self.assertNotIn("gpu_bytes", counters, "what is 0 is left out")
        self.assertIn(">closed<", guard._repr_html_())
        for text in (shown, counters):
            xml.dom.minidom.parseString(text)

    def test_a_title_or_a_value_is_text(self):
        self.assertNotIn("<b>", _shown.table("<b>", [("<b>", "<b>")]))
        self.assertEqual([_shown.words_of_bytes(n) for n in (0, 1023, 1024, 5 << 30)], ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"])

    def test_scalars_go_to_a_writer_with_the_programs_step(self):
        class Writer:
            def __init__(self):
                self.written = []

            def add_scalar(self, tag, scalar_value, global_step=None):
                self.written.append((tag, float(scalar_value), global_step))

        writer = Writer()
        with small_guard() as guard:
            for step in range(2):
                with guard.step():
                    torch.ones(1000).sum()
                guard.write_scalars(writer, step=10 + step)
            guard.write_scalars(writer)
            self.assertEqual(guard.progress["phase"], guard.phase, "and the progress bar's figures are its own")
            budget = guard.budget / (1 << 20)
        tags = ["vedette/stall_ms", "vedette/moved_mib", "vedette/resident_mib", "vedette/budget_mib", "vedette/phase"]
        self.assertEqual([tag for tag, _, _ in writer.written], 3 * tags)
        self.assertEqual([step for _, _, step in writer.written], 5 * [10] + 5 * [11] + 5 * [2])
        self.assertEqual(writer.written[3][1], budget)
        guard.write_scalars(writer)
        self.assertEqual([value for _, value, _ in writer.written[-2:]], [0, -1], "a closed guard has no budget and no phase")
        with self.assertRaisesRegex(TypeError, "writer: 5 has no add_scalar; give a torch.utils.tensorboard.SummaryWriter"):
            guard.write_scalars(5)

    def test_scalars_go_to_the_standard_writer_where_the_program_has_it(self):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as missing:
            self.skipTest(f"tensorboard is not installed: {missing}")
        with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer, small_guard() as guard:
            with guard.step():
                torch.ones(10).sum()
            guard.write_scalars(writer)
            writer.flush()
            self.assertTrue(any(name.startswith("events.out.tfevents") for name in os.listdir(folder)))


class Failures(unittest.TestCase):
    def refused(self, sentence, cause="unsupported", budget="8MiB", **options):
        with self.assertRaisesRegex(vedette.Failure, sentence) as raised:
            small_guard(budget, **options).close()
        self.assertEqual(raised.exception.cause, cause)
        self.assertIsInstance(raised.exception, RuntimeError)

    def test_are_the_librarys_sentences(self):
        self.refused("policy 'nothing'|nothing", policy="nothing")
        self.refused("profile: there is no 'all'; there are 'operands', 'layers', 'ops'", "malformed_input", profile="all")
        self.refused("recompute: there is no 'yes'", "malformed_input", recompute="yes")
        with self.assertRaises(vedette.Failure) as raised:
            small_guard(slow="nvme:/nowhere/at/all")
        self.assertIn("/nowhere/at/all", str(raised.exception))
        small_guard().close()  # a refused one leaves nothing open

    def test_of_a_second_guard_with_other_options(self):
        with small_guard() as guard:
            self.refused("a second guard shares the memory of the one that lives, where `policy` has another value", policy="sentinel")
            self.refused("more than", budget="1000TiB")
            self.assertEqual(guard.budget, 8 << 20)

    def test_of_a_closed_guard(self):
        guard = small_guard()
        guard.close()
        guard.close()
        self.assertTrue(guard.is_closed)
        self.assertEqual(repr(guard), "<vedette.Guard, closed>")
        self.assertEqual(guard.counters.steps, 0)
        for use in (guard.step, lambda: guard.watch(torch.nn.Linear(2, 2)), guard.bring_home):
            with self.assertRaisesRegex(vedette.Failure, "this guard is closed; open another one"):
                with use():
                    pass

    def test_of_steps_that_nest_and_of_close_in_a_step(self):
        with small_guard() as guard:
            with guard.step():
                with self.assertRaisesRegex(vedette.Failure, "steps do not nest"):
                    with guard.step():
                        pass
                with self.assertRaisesRegex(vedette.Failure, "a step or layer of this guard runs"):
                    guard.close()
                self.assertFalse(guard.is_closed)
            with guard.layer("x"):
                with self.assertRaisesRegex(vedette.Failure, "a step or layer of this guard runs"):
                    guard.close()

    def test_of_what_cannot_be_watched(self):
        with small_guard() as guard, self.assertRaisesRegex(TypeError, "watch: a dict is neither"):
            guard.watch({})

    def test_of_an_allocation_are_torchs(self):
        with small_guard(slow="nvme:/tmp") as guard:
            with guard.step(), self.assertRaises(RuntimeError):
                torch.empty(1 << 50)
            with guard.step():
                torch.ones(1 << 10)

    def test_survive_pickling(self):
        import pickle
        failure = pickle.loads(pickle.dumps(vedette.Failure("no", "system", 5)))
        self.assertEqual((str(failure), failure.cause, failure.errno), ("no", "system", 5))


class Messages(unittest.TestCase):
    def test_reach_the_function_and_what_it_raises_goes_no_further(self):
        said, unraisable = [], []

        def listen(sentence):
            said.append(sentence)
            raise KeyError("of the listener")

        former, sys.unraisablehook = sys.unraisablehook, lambda what: unraisable.append(what.exc_value)
        try:
            with small_guard(on_message=listen) as guard:
                guard.watch(torch.from_numpy(numpy.ones(1 << 16)), "foreign.tensor")
        finally:
            sys.unraisablehook = former
        self.assertTrue(any("Tensor 'foreign.tensor' lives in memory" in sentence for sentence in said), said)
        self.assertIsInstance(unraisable[0], KeyError)

    def test_go_to_standard_error_once(self):
        script = ("import numpy, torch, vedette\n"
                  "with vedette.Guard('8MiB', slow='host', chunk='64KiB') as guard:\n"
                  "    for _ in range(2): guard.watch(torch.from_numpy(numpy.ones(1 << 16)), 'twice')\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=patience)
        self.assertEqual(done.stderr.count("vedette: Tensor 'twice' lives"), 1, done.stderr)


class Closed(torch.Tensor):
    """A quantized weight: a wrapper whose bytes are other tensors', which nothing but itself can find."""

    @staticmethod
    def __new__(cls, q, scale):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=scale.dtype, requires_grad=False)

    def __init__(self, q, scale):
        self.q, self.scale = q, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return type(args[0])(args[0].q, args[0].scale)
        return func(*[a.q * a.scale if isinstance(a, Closed) else a for a in args], **(kwargs or {}))


class Int8(Closed):
    def __tensor_flatten__(self):
        return ["q", "scale"], None


class Averages:
    """An optimizer around another one, with a tensor of its own."""


class Watching(unittest.TestCase):
    def test_moves_modules_optimizers_and_tensors_into_the_arena(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
        view = model[0].weight.detach()[3]
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        alone, lazy = torch.ones(1000), torch.nn.LazyLinear(4)
        with small_guard() as guard:
            self.assertFalse(vedette.owns(model[0].weight))
            for what in (model, optimizer, alone, lazy):
                guard.watch(what)
            tensors = [*model.parameters(), *model.buffers(), view, alone, torch.ones(3),
                       *(t for s in optimizer.state.values() for t in s.values())]
            self.assertTrue(all(vedette.owns(tensor) for tensor in tensors))
            guard.bring_home()
            home = [*model.parameters(), *(p.grad for p in model.parameters()), alone]
            self.assertFalse(any(vedette.owns(tensor) for tensor in home))

    def watched(self, *all):
        said = []
        with small_guard(on_message=said.append) as guard:
            for what in all:
                guard.watch(what)
            self.assertEqual(said, [])
            yield guard

    def test_moves_what_a_checkpoint_holds(self):
        def make():
            torch.manual_seed(1)
            return torch.nn.Sequential(*[torch.nn.Linear(256, 256, bias=False) for _ in range(8)])

        def step(model, optimizer):
            model(torch.ones(8, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        def state_of(model, optimizer):
            return [t.clone() for t in (*model.parameters(), *(s[k] for s in optimizer.state.values() for k in ("exp_avg", "exp_avg_sq")))]

        with tempfile.TemporaryDirectory() as place:
            plain = make()
            optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
            step(plain, optimizer)
            torch.save({"model": plain.state_dict(), "optimizer": optimizer.state_dict()}, f"{place}/checkpoint.pt")
            [step(plain, optimizer) for _ in range(4)]
            wanted = state_of(plain, optimizer)
            for how in ("plain", "mmap", "assign", "kept"):
                saved = torch.load(f"{place}/checkpoint.pt", mmap=how == "mmap")
                model, said = make(), []
                model.load_state_dict(saved["model"], assign=how == "assign")
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
                optimizer.load_state_dict(saved["optimizer"])
                if how != "kept":
                    del saved
                with self.subTest(how), small_guard("1536KiB", slow=f"nvme:{place}", on_message=said.append) as guard:
                    guard.watch(model)
                    guard.watch(optimizer)
                    for _ in range(4):
                        with guard.step():
                            step(model, optimizer)
                    moments = [s[k] for s in optimizer.state.values() for k in ("exp_avg", "exp_avg_sq")]
                    self.assertTrue(all(vedette.owns(tensor) for tensor in (*model.parameters(), *moments)))
                    self.assertEqual([sentence for sentence in said if "Tensor" in sentence or "tensors (" in sentence], [])
                    self.assertGreater(guard.counters.bytes_in, 0)
                    self.assertTrue(all(map(torch.equal, state_of(model, optimizer), wanted)))
                    guard.bring_home()
                    self.assertFalse(any(vedette.owns(tensor) for tensor in (*model.parameters(), *moments)))

    def test_moves_the_tangent_of_a_dual_number_and_brings_it_home(self):
        said = []
        number, slope = torch.rand(256, 256), torch.rand(256, 256)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(number.clone(), slope.clone())
            with small_guard(on_message=said.append) as guard:
                guard.watch(dual, "dual")
                tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
                self.assertTrue(vedette._core.owns(dual) and vedette._core.owns(tangent))
                guard.bring_home()
                self.assertFalse(vedette._core.owns(dual) or vedette._core.owns(tangent), said)
            self.assertTrue(torch.equal(tangent, slope))

    def test_moves_what_is_inside_of_wrappers_containers_and_sparse_tensors(self):
        n = 1 << 14
        layer = torch.nn.Linear(256, 1, bias=False)
        layer.weight = torch.nn.Parameter(Int8(torch.ones(256, 256, dtype=torch.int8), torch.ones(256, 1)), requires_grad=False)
        graph = torch.nn.Module()
        graph.register_buffer("coo", torch.sparse_coo_tensor(torch.arange(n).repeat(2, 1), torch.ones(n), (n, n), check_invariants=False))
        graph.register_buffer("csr", torch.eye(256).to_sparse_csr())
        graph.cache = {"keys": [torch.ones(n), (torch.ones(n),)]}
        norm = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(64, 64))
        jagged = torch.nested.nested_tensor([torch.ones(64, 32), torch.ones(32, 32)], layout=torch.jagged)
        inner = torch.optim.SGD(norm.parameters(), lr=0.1)
        inner.state[next(iter(norm.parameters()))]["history"] = collections.deque([torch.ones(n), {"b": torch.ones(n)}])
        outer = Averages()
        outer.param_groups, outer.state, outer.inner, outer.mean = inner.param_groups, {}, inner, [torch.ones(n)]
        history = inner.state[next(iter(norm.parameters()))]["history"]
        for guard in self.watched(layer, graph, norm, outer, jagged):
            found = [layer.weight.q, layer.weight.scale, graph.coo._values(), graph.coo._indices(), graph.csr.values(),
                     graph.csr.col_indices(), graph.cache["keys"][0], graph.cache["keys"][1][0], *norm.buffers(), history[0],
                     history[1]["b"], outer.mean[0], jagged.values(), jagged.offsets()]
            self.assertEqual([vedette.owns(tensor) for tensor in found], [True] * len(found))
            self.assertGreaterEqual(guard.counters.live_bytes, sum(tensor.nbytes for tensor in found))
            self.assertEqual((graph.coo.coalesce().values().sum().item(), (layer.weight * 1).sum().item()), (n, 65536.0))
            guard.bring_home()
            self.assertFalse(any(vedette.owns(tensor) for tensor in found[:10]))

    def test_moves_the_history_of_lbfgs_and_gradients_that_exist(self):
        torch.manual_seed(1)
        model = torch.nn.Linear(128, 128)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        x = torch.randn(32, 128)

        def closure():
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        history = optimizer.state[model.weight]
        for _ in self.watched(model, optimizer):
            found = [*history["old_dirs"], *history["old_stps"], history["d"], history["prev_flat_grad"], model.weight.grad,
                     model.bias.grad]
            self.assertEqual([vedette.owns(tensor) for tensor in found], [True] * len(found))
            optimizer.step(closure)

    def test_says_in_one_sentence_what_stays(self):
        layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(150)])
        for layer in layers:
            layer.weight.data = torch.from_numpy(numpy.ones((64, 64), dtype=numpy.float32))
        closed, said = torch.nn.Module(), []
        closed.register_buffer("one", Closed(torch.ones(64, 64, dtype=torch.int8), torch.ones(64, 1)))
        closed.register_buffer("other", torch.ones(64, 64).to_mkldnn())
        with small_guard(on_message=said.append) as guard:
            for _ in range(2):
                guard.watch(layers)
            guard.watch(closed)
        self.assertEqual(len(said), 2, said)
        self.assertRegex(said[0], r"^150 tensors \(2.3 MiB in all\), the first '0.weight', live in memory that libtorch did not allocate")
        self.assertRegex(said[1], r"^2 tensors \(32.0 KiB in all\), the first '[^']*one', are of a kind that is not moved")

    def test_leaves_shared_memory_shared(self):
        with small_guard(on_message=lambda sentence: None) as guard:
            for shared in (torch.ones(1 << 16).share_memory_(), torch.nn.Parameter(torch.ones(1 << 16)).share_memory_()):
                guard.watch(shared, "shared")
                self.assertTrue(shared.is_shared())
                self.assertFalse(vedette.owns(shared))

    def test_names_layers_and_states_in_recordings(self):
        with tempfile.TemporaryDirectory() as place:
            recording = os.path.join(place, "run.vedette")
            with small_guard("4MiB", record=recording) as guard:
                Run(GPT, text, guard=lambda: guard).steps(6)
            shown = subprocess.run([sys.executable, "-m", "vedette", "report", recording, "--json"], capture_output=True,
                                   text=True, timeout=patience)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            for name in ("blocks.0.up.weight", "blocks.0.up.weight.exp_avg_sq", "blocks.1.attention"):
                self.assertIn(name, shown.stdout)

    def test_a_layer_of_ones_own_is_in_recordings(self):
        with tempfile.TemporaryDirectory() as place:
            recording = os.path.join(place, "run.vedette")
            with small_guard("4MiB", record=recording) as guard:
                for _ in range(4):
                    with guard.step(), guard.layer("a layer of mine"):
                        torch.ones(1 << 18).mul(2).sum()
            shown = subprocess.run([sys.executable, "-m", "vedette", "report", recording, "--json"], capture_output=True,
                                   text=True, timeout=patience)
            self.assertIn("a layer of mine", shown.stdout, shown.stderr)

    def test_each_rank_of_a_job_has_a_recording_of_its_own(self):
        script = ("import torch, vedette\nwith vedette.Guard('8MiB', slow='host', chunk='64KiB') as guard, guard.step():\n"
                  "    torch.ones(1 << 16) + 1\n")
        with tempfile.TemporaryDirectory() as place:
            environment = {**os.environ, "VEDETTE_RECORD": f"{place}/run.vedette", "WORLD_SIZE": "2"}
            ranks = [subprocess.Popen([sys.executable, "-c", script], env={**environment, "RANK": str(rank)}) for rank in range(2)]
            self.assertEqual([rank.wait(120) for rank in ranks], [0, 0])
            self.assertEqual(sorted(os.listdir(place)), ["run.rank-0.vedette", "run.rank-1.vedette"])
            for name in os.listdir(place):
                told = subprocess.run([sys.executable, "-m", "vedette", "info", f"{place}/{name}"], capture_output=True, text=True,
                                      timeout=patience)
                self.assertIn("steps          1 ", told.stdout, told.stderr)

    def test_lets_tensors_be_swapped(self):
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            with small_guard() as guard:
                model = torch.nn.Linear(256, 256)
                guard.watch(model)
                other = torch.nn.Linear(256, 256)
                model.load_state_dict(other.state_dict())
                self.assertTrue(torch.equal(model.weight, other.weight))
                guard.watch(model)
                model.double()
                self.assertEqual(model.weight.dtype, torch.float64)
                self.assertTrue(torch.equal(model.weight.float(), other.weight))
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    def test_keeps_no_module_alive(self):
        with small_guard() as guard:
            model = torch.nn.Linear(64, 64)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            gone = [weakref.ref(model), weakref.ref(optimizer)]
            guard.watch(model)
            guard.watch(optimizer)
            del model, optimizer
            gc.collect()
            self.assertEqual([one() for one in gone], [None, None])
            with guard.step():
                pass
            guard.bring_home()

    def test_finds_tensors_that_gc_has_frozen(self):
        model = torch.nn.Linear(256, 256)
        view = model.weight.detach()
        gc.collect()
        gc.freeze()
        try:
            with small_guard() as guard:
                guard.watch(model)
                self.assertTrue(vedette._core.owns(model.weight))
                guard.bring_home()
                self.assertFalse(vedette._core.owns(model.weight))
        finally:
            gc.unfreeze()
        self.assertTrue(torch.equal(view, model.weight))

    def test_a_model_that_is_compiled_under_it_is_not_called_unwatched(self):
        messages = []
        torch._dynamo.reset()
        with small_guard("16MiB", on_message=messages.append) as guard:
            model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU())
            compiled = torch.compile(model, backend="aot_eager")
            for _ in range(2):
                with guard.step():
                    compiled(torch.ones(8, 256)).sum().backward()
        self.assertFalse([message for message in messages if "not watched" in message], messages)

    def test_nested_and_symbolic_sizes_are_operands_too(self):
        script = '''
            import torch, vedette
            with vedette.Guard("16MiB", slow="host", chunk="64KiB", verbose=False) as guard, guard.step():
                part = torch.nested.nested_tensor([torch.randn(256, 1024) for _ in range(8)]).chunk(8, dim=-1)[0]
                part.clone()
                torch.nn.functional.embedding(torch.nested.nested_tensor([torch.arange(30), torch.arange(40)]), torch.randn(4096, 256))
                torch.compile(lambda t, i: t.gather(0, i), backend="eager", dynamic=True)(torch.randn(4000), torch.arange(100))
        '''
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("RecordFunction callback", done.stderr)

    def test_resident_of_one_tensor_may_be_entered_twice(self):
        with small_guard() as guard:
            held = torch.ones(1 << 20)  # 4 MiB
            scope = guard.resident(held)
            with scope:
                with scope:
                    pass
                with self.assertRaises(vedette.Failure):  # beside what is still held
                    with guard.resident(torch.ones((1 << 20) + (1 << 19))):
                        pass

    def test_resident_pins_a_tensor(self):
        with small_guard("4MiB") as guard:
            pinned = torch.ones(1 << 18)
            with guard.resident(pinned):
                others = [torch.full((1 << 18,), float(i)) for i in range(12)]
                before = guard.counters.faults
                self.assertEqual(float(pinned.numpy().sum()), 1 << 18)
                self.assertEqual(guard.counters.faults, before)
            self.assertEqual([other[5].item() for other in others], list(range(12)))


class Mistakes(unittest.TestCase):
    def test_a_step_without_with_is_refused_at_the_next(self):
        with small_guard() as guard:
            guard.step()
            with self.assertRaisesRegex(vedette.Failure, "alone begins no step.*write `with guard.step"):
                guard.step()
            with guard.step():  # the corrected cell of a notebook
                pass
        with small_guard() as guard:
            one = guard.step()
            for _ in range(3):
                with one:
                    pass
            with guard.step():
                pass
            self.assertEqual(guard.counters.steps, 4)

    def test_attributes_that_a_guard_has_not_are_refused(self):
        with small_guard() as guard:
            for name in ("slow", "budget", "on_message"):
                with self.assertRaises(AttributeError):
                    setattr(guard, name, "1GiB")

    def test_a_tensor_that_does_not_fit_is_not_resident(self):
        with small_guard("4MiB", on_message=lambda _: None) as guard:
            large = torch.ones(2 << 20)
            with self.assertRaisesRegex(vedette.Failure, r"a tensor of 8.0 MiB does not fit into the budget of 4.0 MiB") as refused:
                with guard.resident(large):
                    pass
            self.assertEqual(refused.exception.cause, "out_of_memory")
            self.assertEqual(large.sum().item(), 2 << 20)
            with self.assertRaisesRegex(TypeError, "resident: a Linear is no tensor"):
                guard.resident(torch.nn.Linear(2, 2))

    def test_a_step_whose_operators_another_thread_calls_says_so_once(self):
        said = []

        def train(guard, call):
            torch.manual_seed(1)
            model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())])
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            if guard:
                guard.watch(model)
                guard.watch(optimizer)

            def body():
                x = torch.randn(512, 256)
                (model(x) - x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

            for _ in range(6):
                with guard.step() if guard else contextlib.nullcontext():
                    call(body)
            return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]

        plain = train(None, lambda body: body())
        with concurrent.futures.ThreadPoolExecutor(1) as pool, small_guard("4MiB", on_message=said.append) as guard:
            self.assertEqual(train(guard, lambda body: pool.submit(body).result()), plain)
        self.assertEqual(len([s for s in said if "begin the step on the thread that trains" in s]), 1, said)
        said.clear()
        with small_guard("4MiB", on_message=said.append) as guard:
            self.assertEqual(train(guard, lambda body: body()), plain)
        self.assertFalse([s for s in said if "on the thread that trains" in s], said)

    def test_counters_stay_readable_and_the_most_is_at_least_what_was_seen(self):
        with small_guard("64MiB") as guard:
            kept = [torch.full((1 << 18,), float(i)) for i in range(20)]
            kept += [each + 1 for each in kept]
            seen = guard.counters.resident_bytes
            self.assertGreaterEqual(seen, 40 << 20)
            self.assertGreaterEqual(guard.counters.resident_max_bytes, seen)
            with guard.step():
                pass
        self.assertEqual(guard.counters.steps, 1)
        self.assertGreaterEqual(guard.counters.resident_max_bytes, seen)


class OpeningAndClosing(unittest.TestCase):
    """As in a notebook: cells close a guard, train without one, open another, and are interrupted."""

    def test_again_and_again_changes_no_bit(self):
        for make, batch in ((ResNet, images), (GPT, text)):
            plain = Run(make, batch).steps(9)
            run = Run(make, batch)
            for part, budget in enumerate((None, "6MiB", None, "9MiB", "5MiB", None)):
                if budget is None:
                    run.guard = None
                    run.steps(1)
                    continue
                with folder() as slow, vedette.Guard(budget, slow=f"nvme:{slow}", chunk=chunk) as run.guard:
                    run.watch()
                    run.steps(2)
                    if part == 3:
                        run.guard.bring_home()
                        self.assertFalse(vedette.owns(next(run.model.parameters())))
                run.guard = None
            self.assertEqual(run.losses, plain.losses)
            self.assertEqual(run.state(), plain.state())

    def test_a_guard_that_nobody_holds_may_be_collected_in_an_operator(self):
        script = '''
            import gc, sys, threading, time, torch, vedette
            gc.disable()
            def drop():
                guard = vedette.Guard("4MiB", slow="host", chunk="64KiB", verbose=False)
                tensors = [torch.full((1 << 18,), float(i)) for i in range(16)]
                with guard.step():
                    tensors[0].add_(1)
                box = [guard]
                box.append(box)
                return tensors
            tensors = drop()
            if sys.argv[1] == "kernel":
                library = torch.library.Library("dropped", "DEF")
                library.define("f(Tensor x) -> Tensor")
                library.impl("f", lambda x: (gc.collect(), [bytearray(n) for n in range(8, 200, 8) for _ in range(50)], x + 1)[2], "CPU")
                for _ in range(20):
                    y = torch.ops.dropped.f(tensors[1])
                assert float(y.sum()) == 2 << 18
            else:
                thread = threading.Thread(target=lambda: (time.sleep(0.05), gc.collect()))
                thread.start()
                while thread.is_alive():
                    for each in tensors:
                        each.mul_(1.0)
            with vedette.Guard("4MiB", slow="host", chunk="64KiB", verbose=False) as guard, guard.step():
                assert [float(each[1]) for each in tensors] == [float(i + (i == 0)) for i in range(16)]
        '''
        for how in ("kernel", "thread", "thread"):
            done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), how], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, (how, done.stderr[-2000:]))

    def test_a_guard_that_nobody_holds_is_closed(self):
        guard = small_guard()
        with guard.step():
            pass
        del guard
        gc.collect()
        small_guard().close()

    def test_an_exception_in_a_step_ends_the_step(self):
        plain = Run(GPT, text).steps(8)
        with folder() as slow, vedette.Guard("5MiB", slow=f"nvme:{slow}", chunk=chunk) as guard:
            run = Run(GPT, text, guard=lambda: guard).steps(4)
            for raised in (ZeroDivisionError, KeyboardInterrupt):
                for after in ("forward", "operator"):
                    generator, torchs = run.generator.get_state(), torch.get_rng_state()
                    with self.assertRaises(RuntimeError if after == "operator" else raised), guard.step():
                        loss = run.loss()
                        if after == "operator":
                            torch.ones(3) @ torch.ones(4)
                        raise raised
                    del loss
                    run.generator.set_state(generator)
                    torch.set_rng_state(torchs)
            run.steps(4)
            self.assertEqual(run.losses, plain.losses)
            self.assertEqual(run.state(), plain.state())
            self.assertEqual(guard.phase, "planned")

    def test_an_exception_leaves_it_though_a_generator_is_suspended_in_a_layer(self):
        def batches(guard):
            with guard.layer("data"):
                yield from range(3)

        with self.assertRaises(KeyError):
            with small_guard() as guard:
                source = batches(guard)
                for _ in source:
                    raise KeyError("the program's own")
        self.assertTrue(guard.is_closed)
        source.close()
        small_guard().close()

    def test_a_closed_one_keeps_no_function_though_its_tensors_live(self):
        class Trainer:
            def say(self, sentence):
                pass

        trainer = Trainer()
        with small_guard(on_message=trainer.say, on_progress=trainer.say) as guard:
            kept = torch.ones(1 << 16)
        self.assertTrue(guard.is_closed)
        gone = weakref.ref(trainer)
        del trainer, guard
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(kept.sum().item(), 1 << 16)

    def test_the_interpreters_end_closes_it(self):
        with tempfile.TemporaryDirectory() as place:
            recording = os.path.join(place, "run.vedette")
            script = (f"import torch, vedette\nguard = vedette.Guard('8MiB', slow='nvme:{place}', chunk='64KiB', record='{recording}')\n"
                      "step = guard.step()\nstep.__enter__()\nx = torch.ones(1000)\n")
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=patience)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"^vedette: 1 step: [^\n]*\nvedette: recorded in [^\n]*\n$")
            info = subprocess.run([sys.executable, "-m", "vedette", "info", recording], capture_output=True, text=True, timeout=patience)
            self.assertEqual(info.returncode, 0, info.stderr)
            self.assertEqual(os.listdir(place), ["run.vedette"])


class Turns(unittest.TestCase):
    def test_ctrl_c_ends_the_wait_for_one(self):
        """Here where it opens a guard: a step waits in the same function."""
        with tempfile.TemporaryDirectory() as place:
            socket = os.path.join(place, "socket")
            daemon = subprocess.Popen([sys.executable, "-m", "vedette", "daemon", "--memory", "24MiB", "--quantum", "0", "--socket", socket],
                                      stdout=subprocess.PIPE)
            self.addCleanup(daemon.stdout.close)
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.kill)
            self.assertIn(b"shares", daemon.stdout.readline())
            program = ("import sys, vedette\n"
                       "guard = vedette.Guard('16MiB', slow='host', chunk=65536, share=sys.argv[1], on_message=lambda line: print(line, flush=True))\n"
                       "print('open', flush=True)\n")
            with small_guard("16MiB", share=socket):  # which has the turn
                job = subprocess.Popen([sys.executable, "-c", program, socket], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(job.kill)
                self.assertIn("waits for its turn", job.stdout.readline())
                job.send_signal(signal.SIGINT)
                self.assertIn("KeyboardInterrupt", job.communicate(timeout=patience)[1])


class ChangesToTorch(unittest.TestCase):
    def test_are_made_when_the_module_is_imported(self):
        from vedette._on_import import change_on_import

        with tempfile.TemporaryDirectory() as place, unittest.mock.patch.object(sys, "path", [place, *sys.path]):
            pathlib.Path(place, "module_of_another_torch.py").write_text("x = 1\n")
            change_on_import("module_of_another_torch", lambda module: setattr(module, "x", module.x + 1), "nothing is lost")
            self.assertEqual(importlib.import_module("module_of_another_torch").x, 2)
            sentence = "^vedette: kernels run on demand, because module_of_another_torch is not as it is in torch 2.11 to 2.15: .*'y'"
            with self.assertWarnsRegex(RuntimeWarning, sentence):
                change_on_import("module_of_another_torch", lambda module: module.y, "kernels run on demand")

    def test_are_all_made_of_the_installed_one(self):
        script = ("import warnings; warnings.simplefilter('error', RuntimeWarning)\n"
                  "import vedette, torch.utils.data\n"
                  "assert torch.utils.data._utils.signal_handling._set_worker_signal_handlers.__wrapped__\n"
                  "try: import torch._inductor.async_compile as compiler\n"
                  "except ModuleNotFoundError: pass\n"
                  "else: assert compiler.AsyncCompile.wait.__wrapped__\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=patience)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


    def test_numpy_is_pickled_by_its_name(self):
        self.assertIs(pickle.loads(pickle.dumps(torch.Tensor.numpy)), torch.Tensor.numpy)


def in_words(versions):
    return vedette._for_torch._in_words(versions)


class TheDoor(unittest.TestCase):
    def test_lets_other_threads_run_while_it_waits(self):
        ticks, stop = 0, False

        def tick():
            nonlocal ticks
            while not stop:
                ticks += 1
                time.sleep(0.0002)

        ticker = threading.Thread(target=tick)
        ticker.start()
        most = 0  # while a guard opened, which measures the disk
        for _ in range(50):
            with folder() as slow:
                before = ticks
                with vedette.Guard("8MiB", slow=f"nvme:{slow}", chunk=chunk):
                    most = max(most, ticks - before)
            if most > 3:
                break
        stop = True
        ticker.join()
        self.assertGreater(most, 3)

    def test_what_stays_in_every_1_x_is_there(self):
        self.assertLessEqual({"Counters", "Failure", "Guard", "current_guard", "estimate", "owns", "resolve_vector_math",
                              "step_in_backward"}, set(vedette.__all__))
        options = inspect.signature(vedette.Guard.__init__).parameters
        self.assertLessEqual({"fast_memory", "slow", "policy", "chunk", "warmup_steps", "profile", "tracker", "on_message", "seed", "ranks",
                              "interference_percent", "fault_us", "checksums", "record", "recompute", "fast", "table_memory",
                              "enabled", "verbose", "on_progress", "max_writes", "pressure", "share"}, set(options))
        self.assertLessEqual({"watch", "step", "layer", "resident", "bring_home", "close", "progress", "is_closed", "counters", "phase",
                              "mechanism", "budget", "fast_memory", "smallest_budget"}, set(vars(vedette.Guard)))
        self.assertLessEqual({"cause", "errno"}, set(vars(vedette.Failure("a sentence"))))

    def test_is_as_its_stubs_say(self):
        stubs = {node.name: node for node in ast.parse((package / "__init__.pyi").read_text()).body
                 if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")}
        self.assertEqual(sorted(stubs), sorted(vedette.__all__))
        members = {node.name: node for node in stubs["Guard"].body if isinstance(node, ast.FunctionDef)}
        public = [name for name in vars(vedette.Guard) if not name.startswith("_")]
        self.assertEqual(sorted(public), sorted(name for name in members if not name.startswith("_")))
        for name, stub in {**members, "step_in_backward": stubs["step_in_backward"]}.items():
            real = inspect.getattr_static(vedette.Guard, name, getattr(vedette, name, None))
            if isinstance(real, property) or stub.args.vararg:
                continue
            names = [argument.arg for argument in (*stub.args.args, *stub.args.kwonlyargs)]
            self.assertEqual(names, list(inspect.signature(real).parameters), name)
        fields = [node.target.id for node in stubs["Counters"].body if isinstance(node, ast.AnnAssign)]
        self.assertEqual(sorted(fields), sorted(name for name in dir(vedette.Counters) if not name.startswith("_")))

    def test_refuses_another_torch_at_import(self):
        built_for, all_of_them = vedette._for_torch.versions()[-1], in_words(vedette._for_torch.versions())
        with tempfile.TemporaryDirectory() as place:
            fake = pathlib.Path(place) / "torch.py"
            environment = {**os.environ, "PYTHONPATH": place + os.pathsep + os.environ["PYTHONPATH"]}

            def import_with(text):
                fake.write_text(text)
                return subprocess.run([sys.executable, "-c", "import vedette"], env=environment, capture_output=True, text=True,
                                      timeout=patience).stderr.splitlines()[-1]

            self.assertEqual(import_with("__version__ = '2.10.1+cpu'"),
                             f"ImportError: vedette was built for torch {all_of_them}, and torch 2.10.1+cpu is installed: "
                             f"pip install 'torch=={built_for}.*'.")
            self.assertEqual(import_with("__version__ = '2.99.1+cpu'"),
                             f"ImportError: vedette was built for torch {all_of_them}, and torch 2.99.1+cpu is installed: "
                             f"pip install 'torch=={built_for}.*', or make the package for that one in a checkout of vedette: "
                             "scripts/wheel.sh --torch 2.99.1.")
            self.assertEqual(import_with("raise ModuleNotFoundError('no', name='torch')"),
                             f"ImportError: vedette needs torch {all_of_them}, and no torch is installed: "
                             f"pip install 'torch=={built_for}.*'.")
            # the command-line tool needs none
            fake.write_text("raise SystemExit('imported')")
            told = subprocess.run([sys.executable, "-m", "vedette", "--version"], env=environment, capture_output=True, text=True,
                                  timeout=patience)
            self.assertEqual(told.stdout, f"vedette {vedette.__version__}\n", told.stderr)

    def test_loads_the_module_of_the_torch_that_is_installed_and_no_other(self):
        package, versions = pathlib.Path(vedette.__file__).parent, vedette._for_torch.versions()
        built_for = ".".join(torch.__version__.split(".")[:2])
        with tempfile.TemporaryDirectory() as place:
            both = pathlib.Path(place) / "with_another/vedette"
            both.mkdir(parents=True)
            for file in package.iterdir():
                (both / file.name).symlink_to(file.resolve())
            core = next((package / f"for_torch_{built_for.replace('.', '_')}").glob("_core*.so"))
            (both / "for_torch_2_99").mkdir()
            (both / "for_torch_2_99" / core.name).write_text("no library")
            torch_2_99 = pathlib.Path(place) / "torch_2_99"
            torch_2_99.mkdir()

            def imports(*first, version=None):
                if version:
                    (torch_2_99 / "torch.py").write_text(f"__version__ = '{version}'")
                paths = [str(path) for path in first] + [os.environ["PYTHONPATH"]]
                return subprocess.run([sys.executable, "-c", "import vedette; print(vedette._core.__file__)"], capture_output=True,
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, text=True, timeout=60)

            found = imports(both.parent)
            self.assertEqual(pathlib.Path(found.stdout.strip()).resolve(), core.resolve(), found.stderr)
            self.assertRegex(imports(torch_2_99, both.parent, version="2.99.0").stderr, "ImportError: .*for_torch_2_99.*too short")
            self.assertIn(f"vedette was built for torch {in_words([*versions, '2.99'])}, and torch 2.10.1 is installed: "
                          "pip install 'torch==2.99.*'.", imports(torch_2_99, both.parent, version="2.10.1").stderr)

    def test_runs_the_command_line_tool(self):
        def run(*words):
            return subprocess.run([sys.executable, "-m", "vedette", *words], capture_output=True, text=True, timeout=patience)

        self.assertIn("report", run("--help").stdout)
        self.assertIn("doctor", run("doctor", "--help").stdout)
        built_for = re.escape(in_words(vedette._for_torch.versions()))
        self.assertRegex(vedette._for_torch.sentence(), rf"^the Python package was built for torch {built_for}; torch 2\.\S+ is")
        wrong = run("no-such-verb")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("there is no verb 'no-such-verb'", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
