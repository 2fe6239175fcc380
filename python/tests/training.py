"""Small models, and one training loop that runs plain or under a guard: what tests compare bit by bit."""

import contextlib
import hashlib
import shutil
import tempfile

import torch
import vedette
from torch import nn
from torch.nn import functional

torch.set_num_threads(min(torch.get_num_threads(), 2))  # as ctest says by OMP_NUM_THREADS
vedette.resolve_vector_math()  # before the first operator of a plain run

chunk = "64KiB"  # these models are small
patience = 500  # seconds, of a child: they end what hangs, and nothing that a busy machine is slow at


@contextlib.contextmanager
def folder():
    """A place for the slow tier, which is gone afterwards."""
    path = tempfile.mkdtemp(prefix="vedette_python_")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Residual(nn.Module):
    def __init__(self, inward, outward, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inward, outward, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outward)
        self.conv2 = nn.Conv2d(outward, outward, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outward)
        self.short = nn.Sequential() if stride == 1 and inward == outward else nn.Sequential(
            nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward))

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(y)) + self.short(x), inplace=True)


class ResNet(nn.Module):
    """As ResNet-18, narrower and on small images."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        blocks = [(width, width, 1)] * 4 + [(width, 2 * width, 2), (2 * width, 2 * width, 1), (2 * width, 4 * width, 2)]
        self.blocks = nn.Sequential(*[Residual(*block) for block in blocks])
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x):
        return self.head(self.blocks(self.first(x)).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, future):
        n, length, width = x.shape
        q, k, v = self.attention(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        scores = (q @ k.transpose(-2, -1) / (width / self.heads) ** 0.5).masked_fill(future, -torch.inf).softmax(-1)
        x = x + self.projection((scores @ v).transpose(1, 2).reshape(n, length, width))
        return x + functional.dropout(self.down(functional.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    def __init__(self, layers=3, heads=4, width=96, context=64, symbols=64, dropout=0.1):
        super().__init__()
        self.token, self.position = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1))

    def forward(self, symbols):
        length = symbols.shape[1]
        x = self.token(symbols) + self.position(torch.arange(length))
        for block in self.blocks:
            x = block(x, self.future[:length, :length])
        return self.head(self.norm(x))


def images(generator, batch=32, size=28):
    return torch.randn(batch, 1, size, size, generator=generator), torch.randint(0, 10, (batch,), generator=generator)


def text(generator, batch=16, length=64, symbols=64):
    symbols = torch.randint(0, symbols, (batch, length + 1), generator=generator)
    return symbols[:, :-1], symbols[:, 1:]


def bits(tensor):
    return hashlib.sha256(tensor.detach().contiguous().numpy()).hexdigest()[:16]


def state(model, optimizer):
    """Every parameter, buffer and tensor of the optimizer's state, by name."""
    found = {name: bits(tensor) for name, tensor in model.state_dict().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, values in optimizer.state.items():
        for key, tensor in values.items():
            if isinstance(tensor, torch.Tensor):
                found[f"{names[id(parameter)]}.{key}"] = bits(tensor)
    return found


class Run:
    """A training, whose steps may be run in parts. `make` gives the model, `batch` one batch from a generator."""

    def __init__(self, make, batch, optimizer=None, guard=None, born_under_the_guard=True):
        self.guard, self.batch = None, batch
        if born_under_the_guard and guard:
            self.guard = guard()
        torch.manual_seed(1)
        self.model = make()
        if guard and not self.guard:
            self.guard = guard()
        self.optimizer = (optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=1e-3)))(self.model.parameters())
        if self.guard:
            self.watch()
        self.generator = torch.Generator().manual_seed(2)
        self.losses, self.faults = [], []  # of each step
        torch.manual_seed(3)

    def watch(self):
        self.guard.watch(self.model)
        self.guard.watch(self.optimizer)

    def loss(self, forward=None):
        x, y = self.batch(self.generator)
        return functional.cross_entropy((self.model if forward is None else forward)(x).flatten(0, -2), y.flatten())

    def one_step(self, in_backward=False, clip=None, accumulate=1, forward=None):
        for part in range(accumulate):
            loss = self.loss(forward)
            self.losses.append(loss.item())
            if in_backward and part == accumulate - 1:
                vedette.step_in_backward(self.optimizer, loss.backward)
                return
            loss.backward()
            del loss
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps(self, count, **how):
        for _ in range(count):
            before = self.guard.counters.faults if self.guard else 0
            with self.guard.step() if self.guard else contextlib.nullcontext():
                self.one_step(**how)
            self.faults.append((self.guard.counters.faults if self.guard else 0) - before)
        return self

    def state(self):
        return state(self.model, self.optimizer)


def peak_of(make, batch, optimizer=None, **how):
    """Bytes of all tensors at their most, in a guard that moves nothing."""
    with vedette.Guard("1GiB", slow="host", chunk=chunk, policy="on-demand") as guard:
        Run(make, batch, optimizer, lambda: guard).steps(3, **how)
        return guard.counters.peak_bytes
