"""One guard around a PyTorch training loop whose tensors are larger than fast memory. Sizes are in bytes, as an int or a str such as
"500MiB", "2GiB" or "1.5GB".

Errors: what vedette cannot do is raised as Failure, in one sentence with the remedy. A wrong size is a ValueError, a wrong type a
TypeError. Allocations inside the loop fail as torch's do: a RuntimeError with the same sentence.

Threads: open, watch, step, bring_home and close from the training thread. Any thread may use, make and free tensors; none may make one
while the first guard of a process opens. A child of fork() (a DataLoader's worker) gets ordinary memory. Functions that wait for bytes or
plan release the GIL, and no thread of vedette ever takes it.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import torch

__version__: str

class Failure(RuntimeError):
    """What vedette could not do, in one sentence with the remedy."""

    cause: Literal["unavailable", "unsupported", "out_of_memory", "malformed_input", "infeasible", "system"]
    errno: int
    """0 unless a system call failed."""
    def __init__(self, message: str, cause: str = ..., errno: int = ...) -> None: ...

class _ScalarWriter(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None, /) -> object: ...

class Counters:
    """Since the guard opened. Bytes, nanoseconds and counts."""

    bytes_in: int
    """Fetched from the slow tier."""
    bytes_out: int
    """Written to the slow tier."""
    bytes_dropped: int
    """Evicted without a write."""
    far_bytes_in: int
    """Of bytes_in, with two slow tiers: from the far one."""
    far_bytes_out: int
    moved_between_slow_tiers: int
    disk_bytes_out: int
    """Written to a disk, if a tier is one."""
    disk_bytes_a_day: int
    """The same in a day of such steps."""
    bytes_in_place: int
    """Of operands that were used where they lay, in slower memory."""
    stall_count: int
    stall_ns: int
    """Waiting for operands, and for room in allocations."""
    faults: int
    """Accesses that no operator announced."""
    bytes_recomputed: int
    ops_recomputed: int
    recompute_ns: int
    live_bytes: int
    peak_bytes: int
    resident_bytes: int
    resident_max_bytes: int
    """The most fast memory that was in use; never above the budget."""
    steps: int
    ops: int
    elapsed_ns: int
    """From the first step's begin to the last one's end."""
    gpu_bytes: int
    """What this process holds of the GPU's memory in all: the budget, and what lies beside it. This and all below: now; 0 on the CPU."""
    gpu_beside_bytes: int
    """PyTorch's own memory, what it keeps free included, and CUDA's context."""
    gpu_most_beside_bytes: int
    """Of all moments at which it was asked, or an operator took more."""
    gpu_large_bytes: int
    """Of it: pieces for which the budget had no room."""
    gpu_pool_bytes: int
    """Of it: pools of CUDA graphs, and MemPools."""
    gpu_workspace_bytes: int
    """Of it: cuBLAS's, which PyTorch keeps."""
    gpu_context_bytes: int
    """Of it: CUDA's context, by NVML; 0 where that does not know this process."""
    locked_bytes: int
    """Host memory that is locked for copies to and from the GPU."""
    in_locked_bytes: int
    """Of it: what tensors have."""
    most_locked_bytes: int
    """Its limit; 0: none."""
    pageable_bytes: int
    """Host memory behind it, where the driver locked no more."""

class _Optimizer(Protocol):
    param_groups: list[dict[str, Any]]

class Guard:
    """A budget of fast memory. While it is open, CPU tensors are allocated in its arena, operators announce their operands, and tensors
    that do not fit stay in the slow tier until they are used. Tensors outlive it where they are. A guard that is opened beside another
    one shares its memory: the budgets add up to one, all of it serves the step that runs, and other options are the first guard's.

        with vedette.Guard("2GiB", slow="nvme:/data") as guard:
            guard.watch(model)
            guard.watch(optimizer)
            for x, y in loader:
                with guard.step():
                    ...
    """

    def __init__(
        self,
        fast_memory: int | float | str | None = None,
        *,
        slow: str | os.PathLike[str] = "nvme:.",
        policy: str = "vedette",
        chunk: int | str = "2MiB",
        warmup_steps: int = 1,
        profile: Literal["operands", "layers", "ops"] = "layers",
        tracker: str = "best",
        on_message: Callable[[str], object] | None = None,
        seed: int = 1,
        ranks: int = 1,
        interference_percent: int | None = None,
        fault_us: float | None = None,
        checksums: bool = False,
        record: str | os.PathLike[str] = "",
        recompute: Literal["off", "planned", "always"] | None = None,
        fast: str = "dram",
        table_memory: int | str | None = None,
        enabled: bool = True,
        verbose: bool = True,
        on_progress: Callable[[str], object] | None = None,
        max_writes: str = "",
        pressure: bool = False,
        share: str | os.PathLike[str] = "",
    ) -> None:
        """Opens the guard; measures the slow tier for about 0.25 s.

        fast_memory: the budget in bytes, "25%" or 0.25 for a share of the machine's memory (of a smaller memory cgroup's, and of each
            rank under torchrun); None is half of it. Resident bytes never exceed it.
        slow: a directory as an os.PathLike, or "nvme:DIRECTORY", "host:SIZE+nvme:DIRECTORY", "numa:NODE", or "host" (for tests). "@500MB/s" after it bounds its speed.
        policy: a name that `vedette plan --help` lists.
        chunk: the unit of moves, a power of two; embedding tables and small models want "64KiB".
        warmup_steps: steps that run on demand before one is profiled; optimizers have their state afterwards.
        profile: ticks of page tracking: none, layers, or operators.
        tracker: "best", "zap", "missing" or "mprotect".
        on_message: is called with each diagnostic, one sentence; None sends each once to the logger "vedette" as a warning where the program
            has set up logging, and else to sys.stderr. What it raises is ignored.
        ranks: processes of this machine that share the disk; 1 means what LOCAL_WORLD_SIZE says.
        interference_percent: as `vedette doctor` measures it.
        fault_us: what a page fault costs beside its transfer, as `vedette doctor` measures it; None is 100.
        checksums: compares the hash of each fetched chunk with that of the evicted one.
        record: a file that becomes a recording of all steps, for `python -m vedette report`.
        recompute: whether tensors may be dropped and recomputed, with the same bits. None: "planned" in GPU memory, where
            moving is slow beside computing, else "off".
        fast: "dram", or "gpu:N" or "cuda:N" (see docs/gpu-tier.md).
        table_memory: with "gpu:N", how much of the budget is for hot rows of embedding tables; None: there are no tables.
        enabled: False makes a guard that does nothing, so that the program runs as without vedette; so does the environment variable
            VEDETTE_OFF=1.
        pressure: whether fast memory becomes less while the system presses for memory, and grows back when it no longer does
            (docs/fast-memory.md); VEDETTE_PRESSURE=1 does the same.
        share: "auto", or the path of a socket: fast memory is shared with other programs by `vedette daemon` (docs/sharing.md).
        verbose: whether there are signs of life, one line each: when the first plan is there, and at the end what ran.
        on_progress: is called with these lines, on rank 0 alone; None sends them where diagnostics go by default, as information, and
            nowhere beside an on_message.
        max_writes: the most that is written to the disk of `slow`, "500GB/day" or "2TB/day"; plans know that writing is so slow.
            Or the disk's rating, "600TBW" or "1DWPD:2TB": signs of life tell the share of it that a day takes. Or "500GB/day of 600TBW".

        Raises Failure: "unsupported" for an option's value, "unavailable" where a guard is open already or the machine lacks something,
        "system" where the slow tier cannot be opened. Raises TypeError or ValueError, with the option's name, for a value that is of no such
        kind.
        """
    def watch(self, what: torch.nn.Module | _Optimizer | torch.Tensor, name: str = "") -> None:
        """Moves the storages of a module's parameters, their gradients, buffers and other tensors, of an optimizer's state, or of a tensor
        into the arena; views follow. Containers are looked into, optimizers inside of optimizers, wrapper subclasses by
        __tensor_flatten__, sparse tensors; of a DTensor it is the local part. What stays where it is, is said in one sentence for each
        reason: memory that libtorch did not allocate, that is shared with other processes, or that another library has, too (numpy,
        DLPack). `name` stands before the names of its tensors in reports. Between steps, any number of times. Modules and optimizers are
        held weakly.
        """
    def step(self) -> AbstractContextManager[None]:
        """`with guard.step():` around one training step, all of its accumulation included. Steps do not nest. Entering it raises the
        first error of a background thread since the last step; leaving it raises nothing, whatever was raised inside. Without `with`
        no step begins, and the next call raises Failure.
        """
    def layer(self, name: str) -> AbstractContextManager[None]:
        """In a step: the operators in this scope are one layer of reports, whatever parameters they use."""
    def resident(self, tensor: torch.Tensor) -> AbstractContextManager[None]:
        """`with guard.resident(t):` pins the tensor's memory, for system calls and other libraries (numpy, sockets) where userfaultfd
        is missing. A zero-copy send needs it until the send is done. Raises Failure ("out_of_memory") for a tensor that has no
        room in the budget beside what is pinned already.
        """
    def place(self, names: str, tier: Literal["fast", "slow"], *, rule: bool = False) -> None:
        """Where tensors lie whose names match a pattern, as of a shell: `guard.place("*.exp_avg*", "slow")`. "fast": they stay in fast
        memory; "slow": ops use them where they lie, in memory that can be used in place (`slow="numa:1"`). Plans keep a rule where
        there is a plan that does, or a message says so, and otherwise a hint: where the step takes no longer. Call it before the
        first step. Raises Failure ("unsupported") for "slow" where nothing can be used in place.
        """
    def bring_home(self) -> None:
        """Moves what is watched, and its gradients, to ordinary memory; training goes on without the guard. What another library has,
        too, stays where it is, with a message. Raises Failure ("out_of_memory"), and changes nothing, when it does not fit.
        """
    def close(self) -> None:
        """Ends the guard; twice is no error. Tensors stay valid where they are, and the next guard may open. Leaving `with Guard(...)`
        and the interpreter's exit do it, too.
        """
    def __enter__(self) -> Guard: ...
    def __exit__(self, *raised: object) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def counters(self) -> Counters:
        """Of a closed guard those of its end."""
    @property
    def phase(self) -> Literal["warm-up", "profiling", "planned", "foreseen", "off"]:
        """Of the latest step; "foreseen" means predicted, "off" a guard that is not enabled."""
    @property
    def progress(self) -> dict[str, float | str]:
        """A few figures for a progress bar or a log, `bar.set_postfix(guard.progress)`: "stall_ms" and "moved_mib" of a step, the mean of
        those since the last call, and "phase".
        """
    def write_scalars(self, writer: _ScalarWriter, step: int | None = None) -> None:
        """Writes "vedette/stall_ms" and "vedette/moved_mib" of a step (the mean of those since the last call), "vedette/resident_mib",
        "vedette/budget_mib" and "vedette/phase" (0 warm-up, 1 profiling, 2 foreseen, 3 planned, -1 none) to a TensorBoard SummaryWriter, or to
        whatever has its add_scalar(tag, value, global_step). `step` is the program's; without it, the steps of the guard so far. A TypeError
        where the writer has none.
        """
    @property
    def mechanism(self) -> str:
        """The way in which chunks move on this machine, in words."""
    @property
    def budget(self) -> int:
        """Bytes."""
    @property
    def fast_memory(self) -> int:
        """The budget as it is now, in bytes. It may be set to another one while the program runs, from any thread and any number of times, as
        the constructor's `fast_memory` is written: `guard.fast_memory = "1GiB"`. Memory that goes is free for other programs when the
        assignment returns. Where tensors are held, it falls as far as it can: the budget read back is larger, on_message says what
        holds the rest, and that follows. Plans for the new size are made beside the program. Raises Failure for less than eight chunks or more
        than the machine has.
        """
    @fast_memory.setter
    def fast_memory(self, size: int | str | float) -> None: ...
    @property
    def smallest_budget(self) -> int:
        """Bytes: the operands of the largest operator seen, plus what stays."""

def current_guard() -> Guard | None:
    """A guard that is open in this process; None where there is none, or where it is not enabled."""

def estimate(
    step: Callable[[], object],
    *,
    card: str | None = None,
    memory: int | str | None = None,
    host: int | str | None = None,
    disk: str | None = None,
    trace: str | os.PathLike[str] | None = None,
    step_ms: float | None = None,
) -> dict[str, Any]:
    """Whether one training step fits into so much memory, and how fast it is there: what `vedette fits --json` says of it.

    `step` runs one whole step and is called twice: optimizers make their state in the first. On meta tensors, and in a
    FakeTensorMode, nothing is computed, and a model that fits nowhere is answered: name a `card` then. Shapes, lifetimes and operands
    are recorded, times by a roofline on a card, else as they are here.

    card: a GPU that `vedette fits --list` lists. memory: its fast memory, "24GiB"; None is a table of sizes. host: host memory below a
    card. disk: the speed of a disk, "2GB/s". trace: a file that keeps the step (vedette-trace-1), for `vedette plan`.
    step_ms: the time of a step on the card with all memory, where it is known: then times are no range.

    Raises Failure for a step that needs numbers which such tensors do not have, for an unknown card, and for memory that is less than
    the largest operator needs. Thread rule: the thread that calls runs the step; backward passes of CUDA tensors are not seen.
    """

def step_in_backward(optimizer: _Optimizer, backward: Callable[[], object], *, per_parameter: bool = False) -> None:
    """Replaces `backward(); optimizer.step(); optimizer.zero_grad()`, with the same bits: each parameter is updated as soon as its
    gradient is complete, within the pass, and the gradient is freed.

        vedette.step_in_backward(optimizer, loss.backward)   # instead of loss.backward(); optimizer.step()

    With accumulated gradients, call it for the last pass before the step. It does not suit loops that use the gradients of several
    parameters between pass and step (to clip their common norm). It needs no guard. Python runs once for each parameter, in the
    optimizer's own step().

    It takes torch.optim's optimizers by exact type (all but LBFGS), also in the wrappers of Accelerate and Lightning and in
    ZeroRedundancyOptimizer. Raises Failure before the first update for all others, which may look at several gradients in step() (a
    wrapper, a norm, an average among ranks), and for one with step hooks. per_parameter=True is your word that this optimizer updates
    each parameter from its own gradient and state alone. Raises Failure, too, for LBFGS, for an optimizer that changes values of a
    whole group in a step, where something else waits for a gradient (DistributedDataParallel's Reducer), and where a second part of a
    gradient comes after its update. Exceptions
    of `backward` pass through; the parameters that it had reached are updated then.
    """

def owns(tensor: torch.Tensor) -> bool:
    """The tensor's memory is in the arena of this process's guard, or of an earlier one."""

def resolve_vector_math() -> None:
    """Calls each of oneMKL's vector functions once on one element, as opening a guard does. A plain run that is compared with a guarded
    one bit by bit calls this before its first operator (pytorch/pytorch issue 188792).
    """
