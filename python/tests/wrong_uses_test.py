"""Wrong uses, by their kind: each is refused with one sentence that says what to do, and a training goes on afterwards. Two rows differ
only where the program reaches another check."""

import contextlib
import errno
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import vedette
from training import chunk

package = pathlib.Path(vedette.__file__).parent
tool = package / "bin" / "vedette"


def small_guard(budget="8MiB", **options):
    return vedette.Guard(budget, **{"slow": "host", "chunk": chunk, "on_message": lambda sentence: None, **options})


def losses(guard=None, steps=4):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
    optimizer = torch.optim.Adam(model.parameters())
    if guard is not None:
        guard.watch(model)
        guard.watch(optimizer)
    out = []
    for _ in range(steps):
        with guard.step() if guard is not None else contextlib.nullcontext():
            loss = model(torch.ones(32, 256)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            out.append(loss.item())
    return out


def opens(**options):
    return lambda: small_guard(**options).close()


def in_guard(use, **options):
    """`use(guard)` in a guard that trains on afterwards."""

    def run():
        with small_guard(**options) as guard:
            try:
                use(guard)
            finally:
                if not guard.is_closed:
                    losses(guard, 1)

    return run


def closed(use):
    def run():
        guard = small_guard()
        guard.close()
        use(guard)

    return run


def enters(make):
    def use(guard):
        with make(guard):
            pass

    return use


def in_step(use):
    def run(guard):
        with guard.step():
            use(guard)

    return run


def left_without_entering(make, use):
    def run(guard):
        make(guard).__exit__(None, None, None)
        use(guard)

    return run


def in_layer(use):
    def run(guard):
        layer = guard.layer("a")
        with layer, layer:
            use(guard)

    return run


def in_thread(use):
    def run(guard):
        raised = []

        def body():
            try:
                use(guard)
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    return run


def in_child(use):
    """What a child of fork() raises is raised here, as far as its class and words go."""

    def run(guard):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                use(guard)
                words = ""
            except Exception as error:
                words = f"{type(error).__name__}|{error}"
            os.write(write, words.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            words = pipe.read()
        os.waitpid(child, 0)
        if words:
            kind, sentence = words.split("|", 1)
            raise {"Failure": vedette.Failure}.get(kind, RuntimeError)(sentence)

    return run


def limit_and(use, **limits):
    def body():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))
        use()

    return body


def limited(use, **limits):
    """`use()` in a child with smaller limits of resources, RLIMIT_NOFILE=6 say."""
    return lambda: in_child(lambda _: limit_and(use, **limits)())(None)


def trains(**options):
    def run():
        with small_guard(**options) as guard:
            losses(guard)

    return run


def as_nobody(use):
    def body(_):
        os.setgid(65534)
        os.setuid(65534)
        use()

    def run():
        if os.getuid() != 0:
            raise unittest.SkipTest("only root can become nobody")
        in_child(body)(None)

    return run


def lbfgs():
    return torch.optim.LBFGS(torch.nn.Linear(2, 2).parameters())


def doubled():
    """A backward pass that reaches the parameter twice."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)

    def backward():
        weight.sum().backward()
        weight.sum().backward()

    vedette.step_in_backward(optimizer, backward)


def pinned_beside(guard):
    """Two tensors that fit one by one."""
    first, second = torch.ones(1 << 20), torch.ones(1 << 20)
    with guard.resident(first), guard.resident(second):
        pass


class Own(torch.optim.SGD):
    pass


def hooked():
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


F, T, V = vedette.Failure, TypeError, ValueError
linear = torch.nn.Linear(2, 2)
folder = pathlib.Path(tempfile.mkdtemp(prefix="vedette_wrong_uses_"))
(folder / "file").write_text("no folder")
unittest.addModuleCleanup(shutil.rmtree, folder, True)

# kind: (what is done, exception, its sentence as a regular expression)
rows = {
    "wrong type": [
        (lambda: vedette.Guard(True), T, r"fast_memory: True is no size; write '500MiB', '2GiB' or a whole number of bytes"),
        (lambda: vedette.Guard([1]), T, r"fast_memory: \[1\] is no size"),
        (opens(slow=None), T, r"slow: None is no slow tier; write 'nvme:/data', 'host', or the path of a directory"),
        (opens(recompute=True), T, r"recompute: True is no word; write 'off', 'planned' or 'always'"),
        (opens(warmup_steps="1"), T, r"warmup_steps: '1' is no whole number; write 0, 1 or more"),
        (opens(fault_us="5"), T, r"fault_us: '5' is no time; write a number of microseconds"),
        (opens(on_message="print"), T, r"on_message: 'print' cannot be called; give a function that takes a sentence"),
        (opens(on_progress=1), T, r"on_progress: 1 cannot be called; give a function"),
        (opens(record=True), T, r"record: True is no path; write 'run\.vedette'"),
        (opens(max_writes=5), T, r"max_writes: 5 is no word; write '500GB/day'"),
        (in_guard(lambda guard: guard.watch(3)), T, r"watch: a int is neither a torch\.nn\.Module nor an optimizer nor a tensor"),
        (in_guard(lambda guard: guard.resident(linear)), T, r"resident: a Linear is no tensor; pin its tensors one by one"),
        (lambda: setattr(small_guard(enabled=False), "fast_memory", None), T, r"fast_memory: None is no size"),
        (in_guard(lambda guard: guard.place(linear, "fast")), T, r"place: names=Linear\(.* is no text; write guard\.place\('\*\.exp_avg\*', 'fast'\)"),
        (in_guard(lambda guard: guard.place("*", "near")), F, r"\"near\" is no place for tensors; write \"fast\" or \"slow\""),
        (in_guard(lambda guard: guard.place("*", "slow")), F, r"nothing can be used in the slow memory of \"host\""),
    ],
    "wrong unit": [
        (opens(budget="2 gigs"), V, r"fast_memory: '2 gigs' is no size; write '500MiB', '2GiB' or a number of bytes"),
        (opens(budget="150%"), V, r"fast_memory: '150%' is no share of the machine's memory; write '25%' or 0\.25"),
        (opens(chunk="big"), V, r"chunk: 'big' is no size"),
        (opens(chunk="48KiB"), F, r"chunk must be a power of two of at least 16 KiB"),
        (opens(fault_us=-1), V, r"fault_us: -1 is no time; write microseconds, at least 0"),
        (opens(seed=-1), V, r"seed: -1 is out of range; write a whole number from 0 to"),
        (opens(slow="host@5MiB/s"), F, r"has no speed after '@'; write 500MB/s or 0\.5GB/s"),
        (opens(slow="nvme:/tmp@5"), F, r"has a speed without a unit after '@'; write @500MB/s or @0\.5GB/s"),
        (opens(slow="nvme:/tmp", max_writes="500GB"), F, r"max_writes '500GB' is no number of bytes a day; write 500GB/day or 2TB/day"),
        (opens(slow="host:much+nvme:/tmp"), F, r"give a size such as 8GiB, of at least"),
    ],
    "wrong path": [
        (opens(slow="nvme:/nowhere/at/all"), F, r"/nowhere/at/all: No such file or directory; name a directory of a local file system"),
        (opens(slow=f"nvme:{folder}/file"), F, r"file: Not a directory; name a directory"),
        (opens(slow="/data"), F, r"slow tier '/data' is unknown; did you mean 'nvme:/data'\?"),
        (opens(slow="disk"), F, r"slow tier 'disk' is unknown; use nvme:DIRECTORY or host or"),
        (opens(slow="numa:99"), F, r"numa"),
        (opens(record="/nowhere/run.vedette"), F, r"/nowhere/run\.vedette"),
        (opens(record=str(folder)), F, re.escape(str(folder))),
        (opens(fast="gpu:x"), F, r"gpu:x"),
        (opens(fast="disk"), F, r"disk"),
        (opens(policy="nothing"), F, r"no policy 'nothing'; there are: "),
        (opens(tracker="eyes"), F, r"no page tracker 'eyes'; there are: best, "),
        (opens(profile="all"), F, r"profile: there is no 'all'; there are 'operands', 'layers', 'ops'"),
    ],
    "wrong order": [
        (closed(enters(lambda guard: guard.step())), F, r"this guard is closed; open another one with vedette\.Guard"),
        (closed(lambda guard: guard.watch(linear)), F, r"this guard is closed"),
        (closed(lambda guard: guard.bring_home()), F, r"this guard is closed"),
        (closed(enters(lambda guard: guard.resident(torch.ones(2)))), F, r"this guard is closed"),
        (closed(enters(lambda guard: guard.layer("a"))), F, r"this guard is closed"),
        (closed(lambda guard: guard.phase), F, r"this guard is closed"),
        (in_guard(in_step(lambda guard: guard.close())), F, r"a step or layer of this guard runs; leave its `with` before close\(\)"),
        (in_guard(left_without_entering(lambda guard: guard.layer("a"), in_layer(lambda guard: guard.close()))), F, r"a step or layer of this guard runs"),
        (in_guard(in_step(left_without_entering(lambda guard: guard._core.step(), lambda guard: guard.close()))), F, r"a step or layer of this guard runs"),
        (lambda: vedette.step_in_backward(Own(linear.parameters(), 0.1), lambda: None), F, r"per_parameter=True"),
        (lambda: vedette.step_in_backward(hooked(), lambda: None), F, r"hook"),
        (lambda: vedette.step_in_backward(lbfgs(), lambda: None), F, r"LBFGS"),
    ],
    "too small": [
        (opens(budget=1), F, r"fast_memory of 1 bytes? is too small: at least 8 chunks"),
        (opens(budget="64KiB"), F, r"fast_memory of 64\.0 KiB .* is too small: at least 8 chunks"),
        (opens(chunk="4KiB"), F, r"chunk must be a power of two of at least 16 KiB"),
        (opens(ranks=0), F, r"ranks is 0; it counts this process, so it is at least 1"),
        (opens(slow="host:64KiB+nvme:/tmp"), F, r"of at least"),
        (in_guard(enters(lambda guard: guard.resident(torch.ones(4 << 20)))), F,
         r"a tensor of 16\.0 MiB does not fit into the budget of 8\.0 MiB; use a larger budget"),
    ],
    "missing privilege": [
        (as_nobody(opens(slow="nvme:/root")), F, r"/root: Permission denied; name a directory of a local file system that this user may"),
        (as_nobody(opens(record="/root/run.vedette")), F, r"/root/run\.vedette"),
        (as_nobody(opens(slow="nvme:/proc")), F, r"/proc"),
        (as_nobody(limit_and(opens(), RLIMIT_NPROC=1)), F, r"raise the limit of processes \(ulimit -u\)"),
        (limited(opens(), RLIMIT_NOFILE=6), F, r"open files"),
        (limited(opens(), RLIMIT_AS=1 << 30), F, r"address"),
    ],
    "full": [
        (limited(trains(slow="nvme:/tmp"), RLIMIT_FSIZE=1 << 20), RuntimeError, r"limit of a file's size is reached \(ulimit -f\); free some or name"),
        (in_guard(lambda guard: torch.empty(1 << 50, dtype=torch.uint8)), RuntimeError, r"allocation of .* is larger than the arena"),
        (in_guard(pinned_beside), F, r"memory of 4\.0 MiB cannot be kept in fast memory, .* with 4\.0 MiB held already; use a larger budget"),
        (opens(budget="100TiB"), F, r"fast_memory of 100\.0 TiB .* is more than the machine has"),
        (opens(budget="100TB", fast="dram"), F, r"is more than the machine has"),
    ],
    "twice": [
        (in_guard(lambda guard: vedette.Guard("8MiB", slow="nvme:/nowhere")), F,
         r"shares the memory of the one that lives, where `slow` has another value; leave it out, .*vedette\.current_guard\(\)\.close\(\)"),
        (in_guard(lambda guard: small_guard(record="/tmp/other.vedette")), F, r"where `record` has another value"),
        (in_guard(in_step(lambda guard: [guard.step().__enter__() for _ in range(2)])), F, r"steps do not nest"),
        (doubled, F, r"came in two parts.*step after backward where a pass accumulates gradients more than once"),
    ],
    "nested": [
        (in_guard(in_step(enters(lambda guard: guard.step()))), F, r"a step of this guard runs; steps do not nest"),
        (in_guard(in_step(lambda guard: small_guard())), F, r"open another guard between steps"),
    ],
    "in a thread": [
        (in_guard(in_thread(lambda guard: guard.watch(3))), T, r"watch: a int"),
        (in_guard(in_thread(lambda guard: [guard.step() for _ in range(2)])), F, r"begins no step"),
        (in_guard(in_step(in_thread(enters(lambda guard: guard.step())))), F, r"a step of this guard runs"),
        (in_guard(in_thread(lambda guard: small_guard(chunk="128KiB"))), F, r"where `chunk` has another value"),
        (in_guard(in_step(in_thread(lambda guard: guard.close()))), F, r"leave its `with` before close\(\)"),
    ],
    "in a child": [
        (in_guard(in_child(enters(lambda guard: guard.resident(torch.ones(3))))), None, ""),
        (in_guard(in_child(enters(lambda guard: guard.layer("a")))), None, ""),
        (in_guard(in_child(lambda guard: small_guard().close())), None, ""),
        (in_guard(in_child(enters(lambda guard: guard.step()))), F, r"child of fork\(\); open one of its own here, or start the child by spawn"),
        (in_guard(in_child(lambda guard: guard.watch(torch.nn.Linear(256, 256)))), F, r"child of fork\(\)"),
    ],
    "forgotten": [
        (lambda: vedette.estimate(lambda: None), F, r"the step ran no operator; give a callable that trains one step"),
        (lambda: vedette.step_in_backward(torch.optim.SGD(linear.parameters(), 0.1)), T, r"backward"),
        (lambda: vedette.Guard("8MiB", "host"), T, r"positional"),
        (in_guard(lambda guard: [guard.step() for _ in range(2)]), F, r"guard\.step\(\) alone begins no step.*write `with guard\.step\(\):`"),
        (lambda: vedette.Guard("8MiB", slow="host", cunk="64KiB"), T, r"cunk"),
    ],
}


class WrongUses(unittest.TestCase):
    def test_each_is_refused_with_what_to_do_and_a_training_goes_on(self):
        plain = losses()
        for kind, uses in rows.items():
            for number, (use, error, sentence) in enumerate(uses):
                with self.subTest(kind=kind, number=number):
                    if error is None:  # right in a child, too
                        use()
                        continue
                    with self.assertRaisesRegex(error, sentence) as raised:
                        use()
                    self.assertLess(len(str(raised.exception)), 500)
                    self.assertIsNone(vedette.current_guard())
            with small_guard() as guard:
                self.assertEqual(losses(guard), plain, kind)


if __name__ == "__main__":
    unittest.main()
