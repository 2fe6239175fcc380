"""Small trainings on the simulated GPU, plain and under a guard, and how their bits are compared: for tests of what loops do besides."""

import contextlib
import copy
import math
import os

width, words, length, layers, steps = 128, 512, 16, 6, 8
phases = set()  # of the guarded steps
shares = (0.5, 0.3) if "VEDETTE_WHOLE" in os.environ else (0.3,)  # of a peak, as budgets


def decoder():
    """A small language model: an embedding, blocks of causal attention, a head."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.query_key_value, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.query_key_value(self.norm(x)).chunk(3, -1)
            scores = (q @ k.transpose(1, 2)).float() / math.sqrt(width)
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
            x = x + self.out(scores.masked_fill(later, float("-inf")).softmax(-1).type_as(v) @ v)
            return x + self.down(torch.relu(self.up(self.norm_2(x))))

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(words, width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(layers))
            self.head = torch.nn.Linear(width, words, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(1)
    return Decoder().to("cuda")


def batch(number, rows=8):
    import torch

    return torch.randint(0, words, (rows, length + 1), generator=torch.Generator().manual_seed(number)).to("cuda")


def loss_of(model, tokens):
    import torch

    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.reshape(-1, words), tokens[:, 1:].reshape(-1))


def adam(parameters):
    import torch

    return torch.optim.AdamW(parameters, lr=1e-3)


def watched(guard, *what):
    for each in what if guard else ():
        guard.watch(each)


@contextlib.contextmanager
def step_of(guard):
    with guard.step() if guard else contextlib.nullcontext():
        yield
    if guard:
        phases.add(guard.phase)


def update(optimizer, loss):
    """Backward, a step, no gradients any more. The loss as a number."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def result(model, losses):
    return losses, [tensor.detach().cpu().numpy().tobytes() for tensor in model.state_dict().values()]


def train_decoder(guard):
    model = decoder()
    optimizer, losses = adam(model.parameters()), []
    watched(guard, model, optimizer)
    for number in range(steps):
        with step_of(guard):
            tokens = batch(number)
            losses.append(update(optimizer, loss_of(model, tokens)))
            del tokens
    return result(model, losses)


def in_shares(train, recorded_in=None, **options):
    import vedette

    plain = copy.deepcopy(train(None))
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(guard) == plain, "other bits with all memory"
        peak = guard.counters.peak_bytes
    recordings = []
    for share in shares:
        said = []
        recordings.append(f"{recorded_in}/{share}.vedette" if recorded_in else None)
        with vedette.Guard(int(share * peak), fast="gpu:0", slow="host", record=recordings[-1] or "", on_message=said.append,
                           **options) as guard:
            phases.clear()
            assert train(guard) == plain, f"other bits at {share}"
            counters = guard.counters
            print(f"{train.__name__} in {guard.budget >> 10} of {peak >> 10} KiB: {guard.phase}, {counters.bytes_in >> 10} KiB in, "
                  f"{counters.bytes_out >> 10} out, {said}", flush=True)
            assert counters.bytes_in > 0 and phases & {"planned", "foreseen"}  # on a busy machine a kind of step has its plan later
            assert counters.resident_max_bytes <= guard.budget
    return recordings
