"""What loops of today do beside forward, backward and an update, under a guard of GPU memory, on the simulated GPU: clipping, accumulation,
a scaler, LoRA over frozen weights, an average of the weights, evaluation and generation between steps. Each has the plain run's bits at
30 % of its peak, in the whole run at 50 %, too."""

import contextlib
import os
import pathlib
import pickle
import sqlite3
import subprocess
import tempfile
import time
import traceback

import on_simulated_gpu
from gpu_trainings import adam, batch, decoder, in_shares, loss_of, result, step_of, steps, train_decoder, update, watched

# --- the loops: each takes a guard or None


def clipped_and_accumulated(guard):
    """Two parts of a batch, whose gradients are added, and clipped by their norm."""
    import torch

    model = decoder()
    optimizer, losses = adam(model.parameters()), []
    watched(guard, model, optimizer)
    for step in range(steps):
        with step_of(guard):
            for part in range(2):
                loss = loss_of(model, batch(2 * step + part, 4)) / 2
                loss.backward()
                losses.append(loss.item())
            losses.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
            del loss
    return result(model, losses)


def scaled(guard):
    """float16 by autocast, with a scaler whose first scales are too large: these steps are left out."""
    import torch

    model = decoder()
    optimizer, losses = adam(model.parameters()), []
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16, growth_interval=3)
    watched(guard, model, optimizer)
    for step in range(steps):
        with step_of(guard):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_of(model, batch(step))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses += [loss.item(), scaler.get_scale()]
            del loss
    return result(model, losses)


def lora(guard):
    """Frozen weights, and two thin matrices beside each of the large ones."""
    import torch

    class Adapted(torch.nn.Module):
        def __init__(self, frozen):
            super().__init__()
            self.frozen = frozen
            self.a = torch.nn.Parameter(torch.randn(4, frozen.in_features) * 0.02)
            self.b = torch.nn.Parameter(torch.zeros(frozen.out_features, 4))

        def forward(self, x):
            return self.frozen(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, self.a), self.b)

    model = decoder().cpu().requires_grad_(False)
    for block in model.blocks:
        for name in ("query_key_value", "out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name)))
    model.to("cuda")
    optimizer, losses = adam([each for each in model.parameters() if each.requires_grad]), []
    watched(guard, model, optimizer)
    for step in range(steps):
        with step_of(guard):
            losses.append(update(optimizer, loss_of(model, batch(step, 4))))
    return result(model, losses)


def averaged(guard):
    """An exponential average of the weights, in a model of its own."""
    import torch

    model = decoder()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer, losses = adam(model.parameters()), []
    watched(guard, model, average, optimizer)
    for step in range(steps):
        with step_of(guard):
            losses.append(update(optimizer, loss_of(model, batch(step))))
            average.update_parameters(model)
    return result(average, losses)


def evaluated(guard):
    """Every third step the losses of other batches, without gradients: outside of any step, and in one of its own."""
    import torch

    model = decoder()
    optimizer, losses = adam(model.parameters()), []
    watched(guard, model, optimizer)
    for step in range(3 * steps // 2):
        with step_of(guard):
            losses.append(update(optimizer, loss_of(model, batch(step))))
        if step % 3 == 2:
            for number in range(2):
                with torch.no_grad(), step_of(guard) if number else contextlib.nullcontext():
                    losses.append(loss_of(model, batch(100 + number)).item())
    return result(model, losses)


def generated(guard):
    """Between steps the model goes on with a line, word by word, as a program shows what it has learned."""
    import torch

    model = decoder()
    optimizer, said = adam(model.parameters()), []
    watched(guard, model, optimizer)
    for step in range(steps):
        with step_of(guard):
            said.append(update(optimizer, loss_of(model, batch(step))))
        with torch.no_grad():
            line = batch(7, 1)[:, :4]
            for _ in range(6):
                line = torch.cat([line, model(line)[:, -1:].argmax(-1)], 1)
            said.append(line.tolist())
            del line
    return result(model, said)


def clip_and_accumulate():
    in_shares(clipped_and_accumulated)


def scale():
    in_shares(scaled)


def left(recording, like):
    """How often tensors of such names left in the last three steps: written to the slow tier, and dropped, since a copy lies there."""
    with contextlib.closing(sqlite3.connect(recording)) as read:
        return read.execute("SELECT TOTAL(m.verb = 'evict'), TOTAL(m.verb = 'drop') FROM moves m JOIN tensor_places p ON p.begin_byte <= m.chunk "
                            "* c.value AND m.chunk * c.value < p.end_byte JOIN tensors t USING(profile, tensor), (SELECT value FROM meta "
                            "WHERE key = 'chunk_bytes') c WHERE m.step > ? AND t.name LIKE ?", (steps - 3, like)).fetchone()


def adapt():
    with tempfile.TemporaryDirectory() as place:
        for recording in in_shares(lora, place):
            frozen, adapters = left(recording, "%.frozen.%"), left(recording, "%.a")
            print(f"written, and dropped: frozen {frozen}, adapters {adapters}")
            assert frozen[1] > 50 and frozen[0] < frozen[1] / 4  # those that leave first in one of these steps


def average():
    in_shares(averaged)


def evaluate():
    in_shares(evaluated)


def generate():
    in_shares(generated)


def teach():
    """A student learns from a teacher that is trained, too: two guards in one budget."""
    import torch
    import vedette

    def train(guards):
        teacher, student = decoder(), decoder()
        optimizers = [adam(model.parameters()) for model in (teacher, student)]
        for guard, *what in zip(guards, (teacher, student), optimizers):
            watched(guard, *what)
        losses = []
        for number in range(steps):
            tokens = batch(number)
            with step_of(guards and guards[0]):
                losses.append(update(optimizers[0], loss_of(teacher, tokens)))
            with step_of(guards and guards[1]):
                with torch.no_grad():
                    wanted = teacher(tokens)
                losses.append(update(optimizers[1], (student(tokens) - wanted).square().mean()))
        return result(student, losses)

    plain = train([])
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train([guard, guard]) == plain
        peak = guard.counters.peak_bytes
    with vedette.Guard(peak // 4, fast="gpu:0", slow="host") as one, vedette.Guard(peak // 4) as other:
        assert train([one, other]) == plain
        assert one.counters.bytes_in > 0 and one.counters.resident_max_bytes <= one.budget <= peak // 2
        one.close()
        assert other.budget <= peak // 4


def in_process(place, name, words, **shared):
    """Trains in a process of its own, whose result and figures become a file. Its number."""
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        os.environ["SIMULATED_GPU"] = words
        import torch
        import vedette

        figures = None
        if shared:
            with vedette.Guard("64MiB", fast="gpu:0", slow="host", on_message=lambda line: None, **shared) as guard:
                pathlib.Path(place, name + ".open").touch()
                found = train_decoder(guard)
                figures = guard.counters.peak_bytes, torch.cuda.mem_get_info()
        else:
            found = train_decoder(None)
        pathlib.Path(place, name).write_bytes(pickle.dumps((found, figures)))
        status = 0
    except Exception:
        traceback.print_exc()
    os._exit(status)


def share_one_device():
    """Three programs on one GPU, by turns and at once: more than it has, and each has the plain run's bits."""
    vedette_command = pathlib.Path(os.environ["VEDETTE_BUILD"], "vedette")
    without_gpu = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory() as place:
        os.waitpid(in_process(place, "plain", "memory_mib=256"), 0)
        plain, _ = pickle.loads(pathlib.Path(place, "plain").read_bytes())
        for policy, memory, dies in (("fair", 40, False), ("pack", 24, False), ("srtf", 40, True)):
            socket = os.path.join(place, policy)
            daemon = subprocess.Popen([vedette_command, "daemon", "--memory", f"{memory}MiB", "--policy", policy, "--quantum", "0", "--socket", socket],
                                      stdout=subprocess.PIPE, env=without_gpu)
            try:
                assert b"shares" in daemon.stdout.readline()
                words = f"memory_mib=60 shared={place}/{policy}.frames"
                names = [f"{policy}-{number}" for number in range(3)]
                children = [in_process(place, name, words, share=socket) for name in names]
                if dies:  # what waits for a turn goes on
                    while not all(pathlib.Path(place, name + ".open").exists() for name in names):
                        time.sleep(0.01)
                    daemon.kill()
                for child in children:
                    assert os.waitpid(child, 0)[1] == 0, policy
                peaks = []
                for name in names:
                    found, (peak, (free, whole)) = pickle.loads(pathlib.Path(place, name).read_bytes())
                    assert found == plain, f"other bits by {policy}"
                    assert free <= whole == 60 << 20
                    peaks.append(peak)
                assert sum(peaks) > 60 << 20, peaks
            finally:
                daemon.kill()
                daemon.wait()


def look_up_rows():
    """Few rows of a tensor that is away are used in host memory: it does not come."""
    import row_programs
    import vedette

    for program in row_programs.programs:
        plain, _ = row_programs.run(program, "cuda")
        with vedette.Guard("5MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
            bits, moved = row_programs.run(program, "cuda", guard)
        print(f"{program.__name__}: a step moves {moved[0] >> 10} KiB in, {moved[1] >> 10} out, of {row_programs.whole >> 10}; in place {moved[2] >> 10}")
        assert row_programs.equal(bits, plain), "other bits: " + program.__name__
        assert max(moved[:2]) <= row_programs.whole // 4, program.__name__
        assert 0 < moved[2] <= row_programs.whole // 4, program.__name__
    print("the same bits")


class Loops(on_simulated_gpu.Processes):
    functions = (clip_and_accumulate, scale, adapt, average, evaluate, generate, teach, share_one_device, look_up_rows)

    def test_clipped_and_accumulated_gradients(self):
        self.run_there(clip_and_accumulate)

    def test_a_scaler_that_leaves_steps_out(self):
        self.run_there(scale)

    def test_frozen_weights_and_adapters(self):
        self.run_there(adapt)

    def test_an_average_of_the_weights(self):
        self.run_there(average)

    def test_evaluation_between_steps(self):
        self.run_there(evaluate)

    def test_a_teacher_and_a_student(self):
        self.run_there(teach)

    def test_three_programs_on_one_device(self):
        self.run_there(share_one_device)

    def test_generation_between_steps(self):
        self.run_there(generate)

    def test_rows_of_a_large_tensor(self):
        self.run_there(look_up_rows)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
