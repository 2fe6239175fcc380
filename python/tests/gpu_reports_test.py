"""Programs after public reports on other tools that move tensors (docs/reports.md has them by number), under a guard of GPU memory, on the
simulated GPU: the plain run's bits within the budget, without a race."""

import io
import os

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
    """15: a cache that grows word by word between trainings, in what lives at most and a twentieth more, fifty rounds."""
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

    plain = rounds(None, 50)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert rounds(guard, 50) == plain
        peak = guard.counters.peak_bytes
    with vedette.Guard(int(1.05 * peak), fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert rounds(guard, 50) == plain
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


def pinned_is_what_was_asked():
    """9 and 11: a hundred tensors of a size that is no power of two lie on the host: what is locked is their sum, and a limit holds. The report says both."""
    import json
    import subprocess
    import sys
    import tempfile

    import torch
    import vedette

    words_of_tensor, count = (1295 << 10) // 4, 100
    with tempfile.TemporaryDirectory() as place:
        recording = f"{place}/run.vedette"
        with vedette.Guard("8MiB", fast="gpu:0", slow="host", record=recording, on_message=lambda _: None) as guard:
            tensors = []
            with guard.step():
                for number in range(count):
                    tensors.append(torch.full((words_of_tensor,), float(number), device="cuda"))
            counters = guard.counters
            assert counters.in_locked_bytes > 0.9 * count * words_of_tensor * 4
            print(counters.locked_bytes, counters.in_locked_bytes)
            assert counters.locked_bytes <= 1.05 * counters.in_locked_bytes
            for number, tensor in enumerate(tensors):
                assert tensor.eq(number).all().item()
            command = [os.path.join(os.environ["VEDETTE_BUILD"], "vedette")]
            quiet = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            with guard.step():
                del tensors, tensor
            top = subprocess.run([*command, "top", str(os.getpid()), "--once", "--json"], env=quiet, capture_output=True, text=True, check=True)
            locked = guard.counters.locked_bytes
            assert json.loads(top.stdout)[0]["locked_bytes"] == locked > 0, (top.stdout, locked)
            top = subprocess.run([*command, "top", str(os.getpid()), "--once"], env=quiet, capture_output=True, text=True, check=True)
            assert "  host, locked: " in top.stdout and "  host, locked: 0 B" not in top.stdout, top.stdout
        command += ["report", recording]
        told = json.loads(subprocess.run([*command, "--json", "-o", "-"], env=quiet, capture_output=True, text=True, check=True).stdout)
        assert told["run"]["gpu"]["locked_bytes"] == locked, told["run"]["gpu"]
        text = subprocess.run([*command, "--text", "-o", "-"], env=quiet, capture_output=True, text=True, check=True).stdout
        assert "host memory, locked" in text and "beside the budget" in text, text[:2000]
    with vedette.Guard("8MiB", fast="gpu:0", slow="host:8MiB", on_message=print) as guard:
        tensors = []
        for number in range(8):
            tensors.append(torch.full((words_of_tensor,), float(number), device="cuda"))
            counters = guard.counters
            assert counters.locked_bytes <= counters.most_locked_bytes == 8 << 20
        for number, tensor in enumerate(tensors):
            assert tensor.eq(number).all().item()


def lengths_rise_and_fall():
    """12: lengths that grow and shrink, five times: after the longest, no host memory is locked any more, and none is taken."""
    import torch
    import vedette

    torch.manual_seed(9)
    with vedette.Guard("3MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(6)]).to("cuda")
        optimizer = trainings.adam(model.parameters())
        trainings.watched(guard, model, optimizer)
        locked = []
        for _ in range(5):
            for rows in [*range(128, 1025, 64), *range(1024, 127, -64)]:
                with guard.step():
                    x = torch.ones(rows, 128, device="cuda")
                    y = x
                    for layer in model:
                        y = torch.relu(layer(y))
                    trainings.update(optimizer, y.square().mean())
                    del x, y
            locked.append(guard.counters.locked_bytes)
        print(f"locked after each rise and fall: {[bytes >> 10 for bytes in locked]} KiB, tensors in {guard.counters.in_locked_bytes >> 10}")
        assert locked[0] > 0 and locked[1:] == locked[1:2] * 4


def checkpoints_keep_both_budgets():
    """14: a checkpoint of a model with its optimizer, saved and loaded under a guard: the same bits, and both budgets hold."""
    import torch
    import vedette

    def half(guard, model, optimizer, first):
        losses = []
        for step in range(first, first + trainings.steps // 2):
            with trainings.step_of(guard):
                tokens = trainings.batch(step)
                losses.append(trainings.update(optimizer, trainings.loss_of(model, tokens)))
                del tokens
        return losses

    def both_halves(guard):
        file = io.BytesIO()
        model = trainings.decoder()
        optimizer = trainings.adam(model.parameters())
        trainings.watched(guard, model, optimizer)
        losses = half(guard, model, optimizer, 0)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        del model, optimizer
        file.seek(0)
        saved = torch.load(file, map_location="cpu")
        model = trainings.decoder()
        optimizer = trainings.adam(model.parameters())
        trainings.watched(guard, model, optimizer)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        del saved
        losses += half(guard, model, optimizer, trainings.steps // 2)
        return trainings.result(model, losses)

    plain = both_halves(None)
    with vedette.Guard("256MiB", fast="gpu:0", slow="host", on_message=lambda _: None) as guard:
        assert both_halves(guard) == plain
        peak = guard.counters.peak_bytes
    for share in trainings.shares:
        host = peak * 5 // 4 >> 20 << 20
        with vedette.Guard(int(share * peak), fast="gpu:0", slow=f"host:{host}B", on_message=print) as guard:
            assert both_halves(guard) == plain, share
            counters = guard.counters
            assert counters.resident_max_bytes <= guard.budget
            assert 0 < counters.locked_bytes <= host and counters.gpu_large_bytes == 0
            print(f"{share}: locked {counters.locked_bytes >> 10} of {host >> 10} KiB, {counters.bytes_out >> 10} KiB out")


def nothing_locks_more():
    """10: the driver locks 4 MiB and no more: training goes on over pageable memory, and a sentence names the limit."""
    import gpu_test
    import vedette

    plain = gpu_test.train()
    said = []
    with vedette.Guard("4MiB", fast="gpu:0", slow="host", on_message=said.append) as guard:
        assert gpu_test.train(guard) == plain
        counters = guard.counters
        print(said, counters.locked_bytes, counters.moved_between_slow_tiers)
        assert 0 < counters.locked_bytes <= 4 << 20 and counters.moved_between_slow_tiers > 0
    assert sum("the driver pins no more than" in sentence for sentence in said) == 1, said


def too_large_a_batch(slow="host"):
    """Neither the budget nor the device has room for a batch. The error is PyTorch's own, and a smaller batch trains on."""
    import torch
    import vedette

    def train(guard):
        torch.manual_seed(10)
        model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).to("cuda")
        optimizer, losses, failed = trainings.adam(model.parameters()), [], 0
        trainings.watched(guard, model, optimizer)
        for step in range(2 * trainings.steps):
            rows = 1 << 15 if guard and step in (3, 9) else 256
            try:
                with trainings.step_of(guard):
                    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
                    y = x
                    for layer in model:
                        y = torch.relu(layer(y))
                    losses.append(trainings.update(optimizer, (y - x).square().mean()))
            except torch.OutOfMemoryError as error:
                assert "CUDA out of memory" in str(error), error
                failed += 1
                optimizer.zero_grad()
            x = y = None
            if rows > 256:
                with trainings.step_of(guard):
                    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
                    y = x
                    for layer in model:
                        y = torch.relu(layer(y))
                    losses.append(trainings.update(optimizer, (y - x).square().mean()))
                    x = y = None
        return trainings.result(model, losses), failed

    plain, _ = train(None)
    with vedette.Guard("9MiB", fast="gpu:0", slow=slow, on_message=print) as guard:
        bits, failed = train(guard)
        assert failed == 2 and bits == plain
        assert guard.phase in ("planned", "foreseen"), guard.phase


def operands_without_room():
    """The same where the operands alone have none: three tensors in turns are larger than the budget together."""
    import torch
    import vedette

    count = 3 << 20
    with vedette.Guard("30MiB", fast="gpu:0", slow="host", on_message=print) as guard:
        a = torch.full((count,), 1.0, device="cuda")
        torch.addcmul(a, a, a)  # the simulated device knows the shape of a result once it has run
        b, c = (torch.full((count,), float(number), device="cuda") for number in (2, 3))
        try:
            torch.addcmul(a, b, c)
            raise AssertionError("there was room")
        except torch.OutOfMemoryError as error:
            assert "CUDA out of memory" in str(error), error
        assert [tensor.sum().item() for tensor in (a, b, c)] == [count, 2 * count, 3 * count]


def both_memories_full():
    """The same with a host that holds what a small batch needs and little more."""
    too_large_a_batch("host:8MiB")


def in_place_without_room():
    """An operator in place is refused as well, before it writes: its tensors are as they were, and others train on."""
    import torch
    import vedette

    count = 3 << 20
    with vedette.Guard("30MiB", fast="gpu:0", slow="host", on_message=print) as guard:
        a, b, c = (torch.full((count,), float(number), device="cuda") for number in (1, 2, 3))
        for write in (lambda: a.addcmul_(b, c), lambda: torch.add(b, c, out=a), lambda: torch._foreach_addcmul_([a], [b], [c])):
            try:
                write()
                raise AssertionError("there was room")
            except torch.OutOfMemoryError as error:
                assert "CUDA out of memory" in str(error), error
        assert [tensor.sum().item() for tensor in (a, b, c)] == [count, 2 * count, 3 * count]
        half = slice(0, count // 2)
        d, e = b[half].clone(), c[half].clone()
        del b, c
        a[half].addcmul_(d, e)
        assert a.sum().item() == count // 2 * 8 and guard.counters.resident_max_bytes <= guard.budget


def shift():
    trainings.in_shares(shifted_targets)


def checkpoint():
    trainings.in_shares(checkpointed)


def route():
    trainings.in_shares(experts)


def add_in_place():
    for recompute in ("planned", "always"):
        trainings.in_shares(in_place_adapters, recompute=recompute)


def over_a_slow_link():
    trainings.in_shares(trainings.train_decoder)


def keep_views():
    trainings.in_shares(saved_views)


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


class ASlowLink(on_simulated_gpu.Processes):
    functions = (over_a_slow_link,)
    environment = {"SIMULATED_GPU": "gbs=0.2 latency_us=500 one_engine=1"}

    def test_2_backward_comes_before_the_copies(self):
        self.run_there(over_a_slow_link)


class HostMemory(on_simulated_gpu.Processes):
    functions = (pinned_is_what_was_asked, lengths_rise_and_fall, checkpoints_keep_both_budgets)

    def test_9_and_11_what_is_locked_is_what_was_asked(self):
        self.run_there(pinned_is_what_was_asked)

    def test_12_lengths_that_rise_and_fall(self):
        self.run_there(lengths_rise_and_fall)

    def test_14_a_checkpoint_keeps_both_budgets(self):
        self.run_there(checkpoints_keep_both_budgets)


class LockedMemoryThatEnds(on_simulated_gpu.Processes):
    functions = (nothing_locks_more,)
    environment = {"SIMULATED_GPU": "lock_mib=4"}

    def test_10_tensors_go_through_what_is_locked_to_pageable_memory(self):
        self.run_there(nothing_locks_more)


class ADeviceWithoutRoom(on_simulated_gpu.Processes):
    functions = (too_large_a_batch, operands_without_room, both_memories_full, in_place_without_room)
    environment = {"SIMULATED_GPU": "memory_mib=40"}

    def test_a_batch_that_is_too_large_is_an_error_to_go_on_after(self):
        self.run_there(too_large_a_batch)

    def test_operands_without_room_are_the_same_error(self):
        self.run_there(operands_without_room)

    def test_both_memories_full_are_the_same_error(self):
        self.run_there(both_memories_full)

    def test_operators_in_place_are_refused_before_they_write(self):
        self.run_there(in_place_without_room)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
