"""CUDA graphs under a guard of GPU memory, on the simulated GPU: what a capture uses stays in place as long as the graph lives, and all else
moves.
"""

import contextlib
import gc
import threading
import time

import on_simulated_gpu
from gpu_trainings import shares

width, rows = 256, 512


def layers(count):
    import torch

    return torch.nn.Sequential(*[layer for _ in range(count) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())])


def model_of_three_parts():
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(layers(6), layers(2), layers(6)).to("cuda")


def batch(step):
    import torch

    return torch.randn(rows, width, generator=torch.Generator().manual_seed(step)).to("cuda")


def train(guard=None, graphed=None, steps=10, middle=None, seed=None, last=lambda result: result):
    """Losses and parameters. `graphed` makes the model's middle part, or `middle`'s, one that replays a graph. `last` is outside of it."""
    import torch

    model = model_of_three_parts()
    if middle:
        model[1] = middle().to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    if graphed:
        model[1] = graphed(model[1])
    if seed is not None:
        torch.manual_seed(seed)
    losses = []
    for step in range(steps):
        with guard.step() if guard else contextlib.nullcontext():
            x = batch(step)
            loss = (last(model(x)) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x
    return losses, numbers(model.parameters())


def numbers(tensors):
    return [tensor.detach().cpu().numpy().tobytes() for tensor in tensors]


def address(tensor):
    import torch

    return torch._C.TensorBase.data_ptr(tensor)


def make_graphed(module):
    import torch

    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    return torch.cuda.make_graphed_callables(module, (torch.zeros(rows, width, device="cuda", requires_grad=True),))


def compile_for_graphs(module):
    import torch

    return torch.compile(module, backend="cudagraphs")


def captured(work):
    """A graph of the work, which runs before as libtorch's documentation has it."""
    import torch

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def guarded(budget, said=None, **options):
    import vedette

    return vedette.Guard(budget, fast="gpu:0", slow="host", on_message=print if said is None else said.append, **options)


def fill(budget):
    """Uses as much memory as the budget has: all that may leave does."""
    import torch

    piece = 1 << 20
    pieces = [torch.zeros(piece // 4, device="cuda") for _ in range(budget // piece)]
    for each in pieces:
        each.add_(1)
    assert all(each.eq(1).all().item() for each in pieces)


def train_in_parts():
    """A training of which a part replays graphs has the plain run's bits, planned, where the rest moves."""
    plain = train()
    assert train(graphed=make_graphed) == plain
    gc.collect()
    with guarded("256MiB", policy="on-demand") as guard:
        train(guard, steps=3)
        peak = guard.counters.peak_bytes
    gc.collect()
    for share in shares:
        said = []
        with guarded(int(peak * share), said) as guard:
            assert train(guard, make_graphed) == plain
            gc.collect()
            assert guard.phase == "planned", guard.phase
            moved = guard.counters.bytes_in
            print(f"{guard.budget >> 10} of {peak >> 10} KiB, in {moved >> 10} KiB: {said}")
            assert moved > 0 and guard.counters.resident_max_bytes <= guard.budget
        assert sum("a CUDA graph was captured" in sentence for sentence in said) == len(said) == 1, said


def train_scaled(change_of, guard=None, steps=8):
    """`change_of(scale)` gives what changes a source of recomputation in place, and is no operator on it."""
    import torch

    model, losses = model_of_three_parts(), []
    model.register_buffer("scale", torch.ones(rows, width, device="cuda"))  # what is watched is trusted between ops
    scale = model.scale
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if guard:
        guard.watch(model)
    change = change_of(scale)
    scale.fill_(1)
    for step in range(steps):
        with guard.step() if guard else contextlib.nullcontext():
            x = batch(step)
            y = model[0](x)
            for _ in range(6):
                y = torch.tanh(y * scale)
            change()  # between the product and where it is used
            loss = (model[2](model[1](y)) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x, y
    return losses, numbers(model.parameters())


def train_with_recomputation():
    """The same where tensors are dropped, and a graph changes a source of theirs in place, which no operator says."""
    def by_graph(scale):
        return captured(lambda: scale.mul_(0.9))[0].replay

    plain, scaled = train(), train_scaled(by_graph)
    gc.collect()
    for budget, run, expected in ((7 << 20, lambda guard: train(guard, make_graphed), plain), (5 << 20, lambda guard: train_scaled(by_graph, guard), scaled)):
        with guarded(budget, recompute="always") as guard:
            assert run(guard) == expected
            gc.collect()
            print(f"{budget >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB, recomputed {guard.counters.bytes_recomputed >> 10}")
            assert guard.counters.bytes_recomputed > 0


def train_compiled():
    """The same of a graph that torch.compile captures, without kernels of Triton's."""
    import torch

    replays = []
    replay = torch.cuda.CUDAGraph.replay
    torch.cuda.CUDAGraph.replay = lambda graph: (replays.append(graph), replay(graph))
    plain = train()
    with guarded(8 << 20) as guard:
        assert train(guard, compile_for_graphs) == plain
        assert guard.phase == "planned" and guard.counters.bytes_in > 0, guard.phase
    assert len(replays) >= 16, f"{len(replays)} replays in ten steps, two of which warm up and record"


def train_beside_an_export():
    """A tensor that another library has, too, is changed by no operator on it: nothing is recomputed from it."""
    import torch

    def by_another_library(scale):
        other = torch.from_dlpack(scale)
        return lambda: other.mul_(0.9)

    plain = train_scaled(by_another_library, steps=6)
    gc.collect()
    with guarded(5 << 20, recompute="always") as guard:
        assert train_scaled(by_another_library, guard, steps=6) == plain
        assert guard.counters.bytes_recomputed > 0


def capture_into_one_pool():
    """What the first graph pushed out of the budget, and what it kept, is no reason to take a tensor of the second for a known one."""
    import torch

    budget = 16 << 20
    with guarded(budget) as guard:
        for small in (44, 52):
            large = [torch.full((1 << 18,), float(i), device="cuda") for i in range(12)]
            for each in large:
                each.mul_(1)
            for factor in (2, 5):
                large[0] * factor  # each operator has to run once before it is captured
            first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(first):
                doubled = [each * 2 for each in large]
            inputs = [torch.full((1 << 15,), 5.0, device="cuda") for _ in range(small)]
            for each in inputs:
                each * 3
            with torch.cuda.graph(second, pool=first.pool()):
                tripled = [each * 3 for each in inputs]
                again = large[0] * 5
            places = [address(each) for each in (*inputs, large[0])]
            fill(budget)
            assert 0 not in places and places == [address(each) for each in (*inputs, large[0])]
            for each in (*inputs, *large):
                each.fill_(7)
            first.replay()
            second.replay()
            assert all(each.eq(21).all().item() for each in tripled) and all(each.eq(14).all().item() for each in doubled)
            assert again.eq(35).all().item()
            del first, second, doubled, tripled, again, inputs, large
        assert guard.counters.resident_max_bytes <= budget


def train_with_dropout():
    """Each replay drops others. A guarded run's are the plain run's, also where eager dropout and other draws come between."""
    import torch

    class Middle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

        def forward(self, x):
            return self.last(torch.dropout(torch.relu(self.first(torch.dropout(x, 0.2, self.training))), 0.5, self.training))

    def train_dropping(guard=None):
        return train(guard, make_graphed, 20, Middle, 5, lambda result: torch.dropout(result, 0.1, True))

    ones = torch.ones(rows, width, device="cuda")
    graph, masks = captured(lambda: [torch.dropout(ones, 0.25, True), torch.rand(rows, device="cuda"), torch.randn(rows, device="cuda")])
    seen = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        for _ in range(2):
            graph.replay()
            seen.append(numbers(masks))
            dropped = masks[0].eq(0).float().mean().item()
            assert abs(dropped - 0.25) < 0.02 and abs(masks[0].max().item() - 1 / 0.75) < 1e-6, dropped
            assert 0 <= masks[1].min().item() and masks[1].max().item() < 1 and abs(masks[2].mean().item()) < 0.2
    assert seen[:2] == seen[2:4], "other numbers by the same seed"
    for kind in range(3):
        assert len({replay[kind] for replay in seen}) == 4, "a replay drew what another one drew"
    del graph, masks
    plain = train_dropping()
    assert train_dropping() == plain
    gc.collect()
    for budget in (8 << 20, 5 << 20)[-len(shares):]:
        with guarded(budget) as guard:
            assert train_dropping(guard) == plain
            gc.collect()
            print(f"{budget >> 10} KiB, {guard.phase}, in {guard.counters.bytes_in >> 10} KiB")
            assert guard.phase == "planned" and guard.counters.bytes_in > 0, guard.phase


def replay_after_evictions():
    """What a capture used lies where it lay, whatever was evicted, until the graph is gone: then it moves again."""
    import torch

    budget = 16 << 20
    with guarded(budget) as guard:
        x, weight = batch(0), torch.randn(width, width, generator=torch.Generator().manual_seed(9)).to("cuda")
        others = [torch.full((1 << 18,), float(i), device="cuda") for i in range(8)]
        expected = [x_of.cpu() @ weight.cpu() for x_of in (batch(1), batch(2))]
        graph, result = captured(lambda: (x @ weight).relu())
        were = [address(x), address(weight)]
        for step in (1, 2):
            fill(budget)
            assert 0 in [address(other) for other in others], "nothing was evicted: the test shows nothing"
            x.copy_(batch(step))
            graph.replay()
            assert torch.equal(result.cpu(), expected[step - 1].relu()), step
            assert [address(x), address(weight)] == were, "what a graph uses has moved"
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            graph.replay()
        del graph, result  # the replay may still run
        fill(budget)
        assert 0 in [address(x), address(weight)], "it stays though its graph is gone"
        assert torch.equal(weight.cpu(), torch.randn(width, width, generator=torch.Generator().manual_seed(9)))
        assert [other[0].item() for other in others] == list(range(8))
        print(guard.counters.bytes_out)


def capture_what_is_away():
    """It comes during the capture, over a slow link, and the first replay finds it."""
    import torch

    budget = 16 << 20
    with guarded(budget):
        weights = [torch.randn(1024, width, generator=torch.Generator().manual_seed(i)).to("cuda") for i in range(4)]
        x = batch(0)
        expected = [(x.cpu() @ weight.cpu().t()) for weight in weights]
        for weight in weights:
            x @ weight.t()
        fill(budget)
        fill(budget)
        assert all(address(weight) == 0 for weight in weights), "nothing is away: the test shows nothing"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = [x @ weight.t() for weight in weights]
        graph.replay()
        assert [torch.equal(a.cpu(), b) for a, b in zip(results, expected)] == [True] * 4
        assert all(address(weight) != 0 for weight in weights)


def more_than_half_of_the_budget():
    """What a graph uses beyond half of the budget becomes libtorch's own memory: ops need room."""
    import torch

    said = []
    budget = 8 << 20
    with guarded(budget, said) as guard:
        weights = [torch.randn(1024, width, generator=torch.Generator().manual_seed(i)).to("cuda") for i in range(6)]
        x = batch(0)
        expected = [(x.cpu() @ weight.cpu().t()) for weight in weights]
        graph, results = captured(lambda: [x @ weight.t() for weight in weights])
        fill(4 << 20)
        for _ in range(2):
            graph.replay()
            assert [torch.equal(a.cpu(), b) for a, b in zip(results, expected)] == [True] * 6
        assert guard.counters.resident_max_bytes <= budget
        assert sum("more are libtorch's own memory now" in sentence for sentence in said) == 1, said


def inputs_that_die():
    """The place of an input that is gone is no other tensor's until the graph is gone, too."""
    import torch

    budget = 8 << 20
    with guarded(budget) as guard:
        x, shift = batch(0), torch.full((rows, width), 3.0, device="cuda")
        graph, result = captured(lambda: x + shift)
        living = guard.counters.live_bytes
        del shift
        fill(budget)
        graph.replay()
        assert torch.equal(result.cpu(), x.cpu() + 3)
        assert guard.counters.live_bytes == living
        del graph, result
        assert guard.counters.live_bytes < living, "the place is lost"
        fill(budget)


def a_graph_beyond_the_guard():
    """A graph replays after its guard, and before one: a sentence says what stays."""
    import torch

    said = []
    with guarded(8 << 20, said):
        x, weight = batch(0), torch.full((width, width), 0.5, device="cuda")
        graph, result = captured(lambda: x @ weight)
    assert sum("tensors that a CUDA graph uses" in sentence for sentence in said) == 1, said
    x.copy_(batch(1))
    graph.replay()
    assert torch.equal(result.cpu(), x.cpu() @ weight.cpu())
    model = model_of_three_parts()
    with torch.no_grad():
        middle, result = captured(lambda: model[1](x))
    said.clear()
    with guarded(8 << 20, said) as guard:
        guard.watch(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            with guard.step():
                model(batch(step)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            middle.replay()
            assert torch.equal(result, model[1](x)), "the graph has other weights than the model"
    assert sum("captured before the guard" in sentence for sentence in said) == 1, said
    del graph, middle, result
    with guarded(8 << 20, said) as guard:
        guard.watch(model)
        assert guard.counters.live_bytes > 0, "no graph lives, and nothing was watched"


def watched_after_the_capture():
    """Weights that a graph uses are not exchanged."""
    import torch

    with guarded(8 << 20) as guard:
        pass
    model = model_of_three_parts()
    with guarded(8 << 20) as guard:
        x = batch(0)
        with torch.no_grad():
            middle, result = captured(lambda: model[1](x))
        guard.watch(model)
        assert guard.counters.live_bytes > 0
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        middle.replay()
        assert torch.equal(result, model[1](x)), "the graph has other weights than the model"


def beside_another_thread():
    """Operators of another thread move tensors while a graph is captured, in the mode that forbids most, and break no capture."""
    import torch

    budget = 16 << 20
    with guarded(budget):
        x, weight = batch(0), batch(1)[:width].contiguous()
        many = [torch.full((1 << 18,), float(i), device="cuda") for i in range(24)]
        sums = [torch.zeros(1 << 18, device="cuda") for _ in range(4)]
        captured(lambda: x @ weight)
        torch.cuda.synchronize()
        stop, rounds = threading.Event(), []

        def use():
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    for i, each in enumerate(many):
                        torch.add(sums[i % 4], each, out=sums[i % 4])
                    torch.cuda.current_stream().synchronize()
                    rounds.append(1)

        other = threading.Thread(target=use)
        other.start()
        for _ in range(3):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                before, result = len(rounds), x @ weight
                while len(rounds) < before + 2 and other.is_alive():
                    time.sleep(0.001)
            graph.replay()
            assert torch.equal(result.cpu(), x.cpu() @ weight.cpu())
        stop.set()
        other.join()
        assert rounds
        for i, each in enumerate(sums):
            assert each.eq(len(rounds) * sum(range(i, 24, 4))).all().item(), i


def refused_captures():
    """A capture that fails leaves the guard as it was."""
    import torch

    with guarded(8 << 20) as guard:
        x = batch(0)
        captured(lambda: x * 2)
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                (x * 2).sum().item()
            raise AssertionError("the host waited in a capture")
        except RuntimeError as error:
            assert "capture" in str(error), error
        gc.collect()
        torch.cuda.synchronize()
        with guard.step():
            fill(8 << 20)
        assert torch.equal((x * 2).cpu(), x.cpu() * 2)
        graph, result = captured(lambda: x * 2)
        graph.replay()
        assert torch.equal(result.cpu(), x.cpu() * 2)


def memory_pools():
    """What a MemPool allocates is libtorch's own memory, and operators on it are ops."""
    import torch

    with guarded(8 << 20) as guard:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.ones(1 << 20, device="cuda")
        live = guard.counters.live_bytes
        outside = inside * 2
        assert guard.counters.live_bytes - live == 4 << 20
        fill(8 << 20)
        assert torch.equal(outside, inside + inside)
        x = batch(0)
        captured(lambda: x * 2)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.use_mem_pool(pool), torch.cuda.graph(graph):
            result = x * 2
        fill(8 << 20)
        graph.replay()
        assert torch.equal(result.cpu(), x.cpu() * 2)
        were = address(x)
        del inside, result, pool
        fill(8 << 20)
        assert address(x) == were, "it moves though its graph lives"


def beside_a_large_operator():
    """The operands of an operator exceed the budget, and the largest of them is a graph's: another one makes room."""
    import torch

    with guarded(8 << 20):
        weight = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(3)).to("cuda")
        a, b = torch.ones(1024, 768, device="cuda"), torch.ones(1024, 768, device="cuda")
        graph, result = captured(lambda: weight[:8] * 2)
        were, expected = address(weight), torch.addmm(a.cpu(), weight.cpu(), b.cpu())
        assert torch.equal(torch.addmm(a, weight, b).cpu(), expected)
        assert address(weight) == were, "what a graph uses was exchanged"
        weight.zero_()
        graph.replay()
        assert not result.cpu().any(), "the graph reads what its weight was before"


class Graphs(on_simulated_gpu.Processes):
    functions = (train_in_parts, train_with_recomputation, train_beside_an_export, capture_into_one_pool, train_with_dropout, train_compiled, replay_after_evictions,
                 capture_what_is_away, more_than_half_of_the_budget, inputs_that_die, a_graph_beyond_the_guard, watched_after_the_capture, beside_a_large_operator,
                 beside_another_thread, refused_captures, memory_pools)

    def test_a_part_of_a_training_replays_graphs(self):
        self.run_there(train_in_parts)

    def test_tensors_are_recomputed_beside_graphs(self):
        self.run_there(train_with_recomputation)

    def test_nothing_is_recomputed_from_what_another_library_has(self):
        self.run_there(train_beside_an_export)

    def test_graphs_share_a_pool(self):
        self.run_there(capture_into_one_pool)

    def test_random_numbers_in_a_graph(self):
        self.run_there(train_with_dropout)

    def test_a_compiled_part_replays_graphs(self):
        self.run_there(train_compiled)

    def test_a_replay_finds_its_memory_after_evictions(self):
        self.run_there(replay_after_evictions)

    def test_what_is_away_comes_during_the_capture(self):
        self.run_there(capture_what_is_away)

    def test_a_graph_takes_half_of_the_budget_at_most(self):
        self.run_there(more_than_half_of_the_budget)

    def test_a_place_is_kept_for_a_graph_whose_input_is_gone(self):
        self.run_there(inputs_that_die)

    def test_graphs_live_longer_than_guards(self):
        self.run_there(a_graph_beyond_the_guard)

    def test_weights_of_a_graph_are_not_exchanged(self):
        self.run_there(watched_after_the_capture)

    def test_an_operator_larger_than_the_budget_leaves_a_graphs_tensors(self):
        self.run_there(beside_a_large_operator)

    def test_other_threads_go_on_during_a_capture(self):
        self.run_there(beside_another_thread)

    def test_a_capture_that_fails_leaves_the_guard_as_it_was(self):
        self.run_there(refused_captures)

    def test_memory_pools_are_libtorchs_own(self):
        self.run_there(memory_pools)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
