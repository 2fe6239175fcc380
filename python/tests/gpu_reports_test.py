"""Programs after public reports on other tools that move tensors (docs/reports.md has them by number), under a guard of GPU memory, on the
simulated GPU: the plain run's bits within the budget, without a race."""

import io

import gpu_trainings as trainings
import on_simulated_gpu


def shifted_targets(guard):
    """1: targets are views with an offset and a stride, and the batch comes on a stream of its own."""
    import torch

    model = trainings.decoder()
    optimizer, losses = trainings.adam(model.parameters()), []
    trainings.watched(guard, model, optimizer)
    beside = torch.cuda.Stream()
    for step in range(trainings.steps):
        with trainings.step_of(guard):
            with torch.cuda.stream(beside):
                tokens = trainings.batch(step)
                shifted = tokens[:, 1:]
            torch.cuda.current_stream().wait_stream(beside)
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), shifted)
            shifted.record_stream(torch.cuda.current_stream())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, logits, tokens, shifted
    return trainings.result(model, losses)


def checkpointed(guard):
    """4: blocks are checkpointed reentrantly, so that weights are used again in the middle of backward."""
    import torch

    model = trainings.decoder()
    optimizer, losses = trainings.adam(model.parameters()), []
    trainings.watched(guard, model, optimizer)
    for step in range(trainings.steps):
        with trainings.step_of(guard):
            tokens = trainings.batch(step)
            x = model.embedding(tokens[:, :-1])
            for block in model.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)
            logits = model.head(x).reshape(-1, trainings.words)
            losses.append(trainings.update(optimizer, torch.nn.functional.cross_entropy(logits, tokens[:, 1:].reshape(-1))))
            del x, logits, tokens
    return trainings.result(model, losses)


def experts(guard):
    """16: two of eight experts for each word, as a router says, so that sizes are others in each step."""
    import torch

    width = 128
    torch.manual_seed(5)
    router = torch.nn.Linear(width, 8)
    each = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.ReLU(), torch.nn.Linear(4 * width, width))
                               for _ in range(8))
    model = torch.nn.ModuleList([router, each]).to("cuda")
    optimizer, losses = trainings.adam(model.parameters()), []
    trainings.watched(guard, model, optimizer)
    for step in range(3 * trainings.steps):
        with trainings.step_of(guard):
            x = torch.randn(256, width, generator=torch.Generator().manual_seed(step)).to("cuda")
            shares, chosen = router(x).softmax(-1).topk(2, -1)
            y = torch.zeros_like(x)
            for number, expert in enumerate(each):
                rows, place = (chosen == number).nonzero(as_tuple=True)
                y = y.index_add(0, rows, expert(x[rows]) * shares[rows, place].unsqueeze(1))
            losses.append(trainings.update(optimizer, (y - x).square().mean()))
            del x, y, rows, place, shares, chosen
    return trainings.result(model, losses)


def in_place_adapters(guard):
    """21: the product of an adapter is added in place to what a frozen layer made."""
    import torch

    torch.manual_seed(6)
    frozen = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(8)).requires_grad_(False)
    thin = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(256, 4, bias=False), torch.nn.Linear(4, 256, bias=False)) for _ in range(8))
    model = torch.nn.ModuleList([frozen, thin]).to("cuda")
    optimizer, losses = trainings.adam(thin.parameters()), []
    trainings.watched(guard, model, optimizer)
    for step in range(trainings.steps):
        with trainings.step_of(guard):
            x = torch.randn(256, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
            y = x
            for layer, adapter in zip(frozen, thin):
                z = layer(y)
                z += adapter(y)
                y = torch.relu(z)
            losses.append(trainings.update(optimizer, (y - x).square().mean()))
            del x, y, z
    return trainings.result(model, losses)


def saved_views(guard):
    """22: backward keeps a view alone, whose base nobody else has."""
    import torch

    torch.manual_seed(7)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 512) for _ in range(8)]).to("cuda")
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    trainings.watched(guard, model)
    for step in range(trainings.steps):
        with trainings.step_of(guard):
            x = torch.randn(512, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
            y = x
            for layer in model:
                y = layer(y)[:, ::2]
                y = y * y
            losses.append(trainings.update(optimizer, y.mean()))
            del x, y
    return trainings.result(model, losses)


def saved_while_away():
    """6: all is evicted, saved, and brought home, twenty times."""
    import torch
    import vedette

    model = trainings.decoder()
    expected = trainings.result(model, [])
    for _ in range(20):
        with vedette.Guard("6MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
            guard.watch(model)
            large = torch.ones(1 << 20, device="cuda")
            assert guard.counters.bytes_out > 0
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            file.seek(0)
            saved = torch.load(file, map_location="cpu")
            assert [tensor.numpy().tobytes() for tensor in saved.values()] == expected[1]
            del large, saved
            guard.bring_home()
        assert trainings.result(model, []) == expected


def generate_and_train():
    """15: a cache that grows word by word between trainings, in what lives at most and a twentieth more, thirty rounds."""
    import torch
    import vedette

    def rounds(guard, count):
        torch.manual_seed(8)
        model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]).to("cuda")
        optimizer, said = trainings.adam(model.parameters()), []
        trainings.watched(guard, model, optimizer)
        for number in range(count):
            with torch.no_grad():
                cache, x = [], torch.ones(8, 256, device="cuda")
                for word in range(5 + number % 7):
                    x = torch.tanh(model(x))
                    cache.append(torch.cat([*cache[-1:], x]))
                said.append(cache[-1].sum().item())
                del cache, x
            with trainings.step_of(guard):
                x = torch.randn(256, 256, generator=torch.Generator().manual_seed(number)).to("cuda")
                said.append(trainings.update(optimizer, (model(x) - x).square().mean()))
                del x
        return trainings.result(model, said)

    plain = rounds(None, 30)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert rounds(guard, 30) == plain
        peak = guard.counters.peak_bytes
    with vedette.Guard(int(1.05 * peak), fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert rounds(guard, 30) == plain
        assert guard.counters.resident_max_bytes <= guard.budget


def less_and_less():
    """18: nine budgets, from all to a fifth: never more on the device than was given, and never fewer bytes moved for less."""
    import gpu_test
    import vedette

    plain = gpu_test.train()
    with vedette.Guard("256MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert gpu_test.train(guard) == plain
        peak = guard.counters.peak_bytes
    moved = []
    for tenth in range(10, 1, -1):
        with vedette.Guard(peak * tenth // 10, fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
            assert gpu_test.train(guard) == plain
            assert guard.counters.resident_max_bytes <= guard.budget
            moved.append(guard.counters.bytes_in + guard.counters.bytes_out)
    print("KiB moved, from all of the peak to a fifth:", [bytes >> 10 for bytes in moved])
    assert moved[0] < moved[4] < moved[-1]


def shift():
    trainings.in_halves_and_thirds(shifted_targets)


def checkpoint():
    trainings.in_halves_and_thirds(checkpointed)


def route():
    trainings.in_halves_and_thirds(experts)


def add_in_place():
    for recompute in ("planned", "always"):
        trainings.in_halves_and_thirds(in_place_adapters, recompute=recompute)


def keep_views():
    trainings.in_halves_and_thirds(saved_views)


class Reports(on_simulated_gpu.Processes):
    functions = (shift, checkpoint, saved_while_away, generate_and_train, route, less_and_less, add_in_place, keep_views)

    def test_1_targets_with_an_offset_and_two_streams(self):
        self.run_there(shift)

    def test_4_reentrant_checkpoints(self):
        self.run_there(checkpoint)

    def test_6_saved_while_it_is_away_and_brought_home(self):
        self.run_there(saved_while_away)

    def test_15_generation_and_training_in_turns(self):
        self.run_there(generate_and_train)

    def test_16_experts_whose_sizes_vary(self):
        self.run_there(route)

    def test_18_less_memory_is_less_memory(self):
        self.run_there(less_and_less)

    def test_21_adapters_in_place_with_recomputation(self):
        self.run_there(add_in_place)

    def test_22_views_that_alone_are_saved(self):
        self.run_there(keep_views)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
