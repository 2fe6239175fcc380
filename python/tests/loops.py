"""Training loops as programs of today have them, small. Each function makes models and optimizers at a place, watches them, and returns
step(i), which gives the step's losses, and the things whose numbers count in the end; a third, where something happens between steps.
"""

import contextlib
import copy
import functools
import io
import math
import queue
import threading

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

width, words, steps = 256, 512, 9


class Place:
    """A device, and a guard or none."""

    def __init__(self, device, guard=None):
        self.device, self.kind, self.guard = device, torch.device(device).type, guard

    def watch(self, *things):
        for thing in things if self.guard else ():
            self.guard.watch(thing)
        return things

    def step(self):
        return self.guard.step() if self.guard else contextlib.nullcontext()

    def random(self, *shape, seed):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(self.device)

    def numbers(self, most, *shape, seed):
        return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed)).to(self.device)


def perceptron(place, layers=6, out=None, seed=1, inside=width, activation=nn.GELU):
    torch.manual_seed(seed)
    modules = [module for _ in range(layers) for module in (nn.Linear(inside, inside), activation())]
    return nn.Sequential(*modules, *([nn.Linear(inside, out)] if out else [])).to(place.device)


def adam(*modules, **options):
    return torch.optim.AdamW([parameter for module in modules for parameter in module.parameters()], lr=1e-3, **options)


def update(optimizer, loss, *others):
    loss.backward()
    for each in (optimizer, *others):
        each.step()
    for each in (optimizer, *others):
        each.zero_grad()
    return [loss.item()]


def error(model, x):
    return (model(x) - x).square().mean()


def generative_adversarial(place):
    maker, judge = perceptron(place, 4), perceptron(place, 4, out=1, seed=2)
    of_maker, of_judge = adam(maker, betas=(0.5, 0.99)), adam(judge, betas=(0.5, 0.99))
    place.watch(maker, judge, of_maker, of_judge)

    def step(i):
        made, real = maker(place.random(64, width, seed=i)), place.random(64, width, seed=100 + i)
        losses = update(of_judge, functional.softplus(-judge(real)).mean() + functional.softplus(judge(made.detach())).mean())
        judge.requires_grad_(False)
        losses += update(of_maker, functional.softplus(-judge(made)).mean())
        judge.requires_grad_(True)
        return losses

    return step, (maker, judge, of_maker, of_judge)


def momentum_contrast(place):
    model, slow = perceptron(place, 4), perceptron(place, 4).requires_grad_(False)
    known = functional.normalize(place.random(width, 1024, seed=3), dim=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    place.watch(model, slow, optimizer, known)

    def step(i):
        x = place.random(64, width, seed=i)
        asked = functional.normalize(model(x + 0.1), dim=1)
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters()):
                old.mul_(0.99).add_(new, alpha=0.01)
            keys = functional.normalize(slow(x), dim=1)
        scores = torch.cat([(asked * keys).sum(1, keepdim=True), asked @ known.clone()], 1) / 0.07
        losses = update(optimizer, functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long, device=place.device)))
        at = 64 * i % 1024
        known[:, at:at + 64] = keys.T
        return losses

    return step, (model, slow, known)


def low_rank_adapters(place):
    base = perceptron(place).requires_grad_(False)
    torch.manual_seed(5)
    down = nn.ParameterList(nn.Parameter(torch.randn(width, 8) * 0.02) for _ in range(6)).to(place.device)
    up = nn.ParameterList(nn.Parameter(torch.zeros(8, width)) for _ in range(6)).to(place.device)
    optimizer = adam(down, up)
    place.watch(base, down, up, optimizer)

    def step(i):
        h = x = place.random(128, width, seed=i)
        for layer in range(6):
            h = functional.gelu(base[2 * layer](h) + h @ down[layer] @ up[layer])
        loss = (h - x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_([*down, *up], 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return [loss.item(), norm.item()]

    return step, (down, up, optimizer)


def accumulated_in_bfloat16(place):
    model = perceptron(place)
    optimizer = adam(model)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=40)
    place.watch(model, optimizer)

    def step(i):
        losses = []
        for part in range(3):
            with torch.autocast(place.kind, dtype=torch.bfloat16):
                loss = error(model, place.random(64, width, seed=10 * i + part)) / 3
            loss.backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=i % 2 == 0)
        rates.step()
        return losses

    return step, (model, optimizer)


def scaled_in_half(place):
    model = perceptron(place, 4)
    optimizer = adam(model)
    scaler = torch.amp.GradScaler(place.kind, init_scale=2.0 ** 22, growth_interval=2)
    place.watch(model, optimizer)

    def step(i):
        with torch.autocast(place.kind, dtype=torch.bfloat16 if place.kind == "cpu" else torch.float16):
            loss = error(model, place.random(64, width, seed=i))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return [loss.item(), scaler.get_scale()]

    return step, (model, optimizer)


def checkpointed(place):
    torch.manual_seed(1)
    blocks = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Dropout(0.1), nn.GELU()) for _ in range(8)]).to(place.device)
    optimizer = adam(blocks)
    place.watch(blocks, optimizer)

    def step(i):
        torch.manual_seed(i)
        h = x = place.random(128, width, seed=i).requires_grad_()
        for number, block in enumerate(blocks):
            h = checkpoint(block, h, use_reentrant=number % 2 == 1)
        return [*update(optimizer, h.square().mean()), x.grad.sum().item()]

    return step, (blocks, optimizer)


def checkpointed_but_for_products(place):
    def policy(context, operator, *arguments, **named):
        products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if operator in products else CheckpointPolicy.PREFER_RECOMPUTE

    model = perceptron(place, 8)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def step(i):
        h = x = place.random(128, width, seed=i)
        for first in range(0, 16, 4):
            h = checkpoint(model[first:first + 4], h, use_reentrant=False,
                           context_fn=functools.partial(create_selective_checkpoint_contexts, policy))
        return update(optimizer, (h - x).square().mean())

    return step, (model, optimizer)


def with_saved_tensors(place, hooks):
    model = perceptron(place)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def step(i):
        with hooks():
            loss = error(model, place.random(128, width, seed=i))
        return update(optimizer, loss)

    return step, (model, optimizer)


def saved_on_the_cpu(place):
    return with_saved_tensors(place, lambda: torch.autograd.graph.save_on_cpu(pin_memory=place.kind != "cpu"))


def saved_in_bfloat16(place):
    def pack(tensor):
        is_large = tensor.dtype == torch.float32 and tensor.numel() > 1000 and not isinstance(tensor, nn.Parameter)
        return tensor.to(torch.bfloat16) if is_large else (tensor,)

    return with_saved_tensors(place, lambda: torch.autograd.graph.saved_tensors_hooks(
        pack, lambda packed: packed[0] if isinstance(packed, tuple) else packed.float()))


def averaged(place):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    torch.manual_seed(1)
    layers = [layer for _ in range(5) for layer in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())]
    model = nn.Sequential(*layers).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, foreach=True)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    place.watch(model, optimizer, average)

    def step(i):
        losses = update(optimizer, error(model, place.random(64, width, seed=i)))
        average.update_parameters(model)
        return losses

    def between(i):
        average.eval()
        with torch.no_grad():
            return [average(place.random(64, width, seed=i)).sum().item()] if i % 3 == 2 else []

    return step, (model, optimizer, average), between


def quasi_newton(place):
    model = perceptron(place, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=3, line_search_fn="strong_wolfe")
    place.watch(model, optimizer)
    x = place.random(64, width, seed=1)

    def step(i):
        def closure():
            optimizer.zero_grad()
            loss = error(model, x)
            loss.backward()
            return loss

        return [optimizer.step(closure).item()]

    return step, (model,)


def learning_to_learn(place):
    model = perceptron(place, 3)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def loss_of(parameters, x, y):
        return (torch.func.functional_call(model, parameters, (x,)) - y).square().mean()

    def step(i):
        parameters = dict(model.named_parameters())

        def task(x, y):
            gradients = torch.func.grad(loss_of)(parameters, x, y)
            return loss_of({name: parameters[name] - 0.1 * gradients[name] for name in parameters}, x, y)

        x, y = place.random(4, 16, width, seed=i), place.random(4, 16, width, seed=50 + i)
        return update(optimizer, torch.func.vmap(task)(x, y).mean())

    return step, (model, optimizer)


def experts(place):
    torch.manual_seed(1)
    each = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(6)).to(place.device)
    router = nn.Linear(width, 6).to(place.device)
    optimizer = adam(each, router)
    place.watch(each, router, optimizer)

    def step(i):
        x = place.random(96, width, seed=i)
        weights, chosen = router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(each):
            rows, nth = (chosen == number).nonzero(as_tuple=True)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, nth, None])
        return update(optimizer, (out - x).square().mean())

    return step, (each, router, optimizer)


def packed_sequences(place):
    torch.manual_seed(1)
    model, head = nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True).to(place.device), nn.Linear(256, 10).to(place.device)
    optimizer = adam(model, head)
    place.watch(model, head, optimizer)

    def step(i):
        lengths = torch.randint(5, 20, (16,), generator=torch.Generator().manual_seed(i)).sort(descending=True).values
        x = place.random(16, int(lengths[0]), 64, seed=i)
        out, _ = model(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))
        y, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return update(optimizer, functional.cross_entropy(head(y.mean(1)), torch.arange(16, device=place.device) % 10))

    return step, (model, head, optimizer)


def parametrized_and_pruned(place):
    from torch.nn.utils import parametrizations, prune

    torch.manual_seed(1)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(width, width)), nn.ReLU(),
                          parametrizations.spectral_norm(nn.Linear(width, width)), nn.ReLU(), nn.Linear(width, width)).to(place.device)
    prune.l1_unstructured(model[4], "weight", 0.3)
    optimizer = adam(model)
    place.watch(model, optimizer)
    return lambda i: update(optimizer, error(model, place.random(64, width, seed=i))), (model, optimizer)


def spectra(place):
    torch.manual_seed(1)
    filters = nn.ParameterList(nn.Parameter(torch.randn(32, 32, 17, dtype=torch.cfloat) / 32) for _ in range(4)).to(place.device)
    optimizer = adam(filters)
    place.watch(filters, optimizer)

    def step(i):
        h = x = place.random(16, 32, 32, seed=i)
        for each in filters:
            h = functional.gelu(torch.fft.irfft(torch.einsum("bix,iox->box", torch.fft.rfft(h), each), n=32) + h)
        return update(optimizer, (h - x).square().mean())

    return step, [torch.view_as_real(each.detach()) for each in filters]


def channels_last(place):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64),
        nn.SiLU(inplace=True), nn.Conv2d(64, 64, 3, 1, 1, groups=64), nn.Conv2d(64, 64, 1), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1024, 10)).to(place.device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    place.watch(model, optimizer)

    def step(i):
        x = place.random(8, 3, 24, 24, seed=i).contiguous(memory_format=torch.channels_last)
        return update(optimizer, functional.cross_entropy(model(x), torch.arange(8, device=place.device), label_smoothing=0.1))

    return step, (model, optimizer)


def clipped_policy(place):
    policy, value = perceptron(place, 3, out=8), perceptron(place, 3, out=1, seed=2)
    optimizer = adam(policy, value, eps=1e-5)
    place.watch(policy, value, optimizer)

    def log_of(x, actions):
        return torch.distributions.Categorical(logits=policy(x)).log_prob(actions)

    def step(i):
        seen, actions, losses = place.random(128, width, seed=i), place.numbers(8, 128, seed=i), []
        with torch.no_grad():
            before, gained = log_of(seen, actions), seen.mean(1)
        for part in torch.randperm(128, generator=torch.Generator().manual_seed(i)).split(32):
            part = part.to(place.device)
            ratio = (log_of(seen[part], actions[part]) - before[part]).exp()
            worth = value(seen[part])[:, 0]
            advantage = gained[part] - worth.detach()
            loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + (worth - gained[part]).square().mean()
            losses += update(optimizer, loss)
        return losses

    return step, (policy, value, optimizer)


def replay(place):
    model, target = perceptron(place, 3, out=4), perceptron(place, 3, out=4)
    optimizer = adam(model)
    states, later, rewards = (torch.zeros(2048, *shape, device=place.device) for shape in ((width,), (width,), ()))
    place.watch(model, target, optimizer, states, later)

    def step(i):
        seen, at = place.random(64, width, seed=i), (torch.arange(64) + 64 * i).to(place.device)
        states.index_copy_(0, at, seen)
        later[at] = seen.roll(1, 0)
        rewards[64 * i:64 * i + 64] = seen.mean(1)
        drawn = place.numbers(64 * (i + 1), 32, seed=i)
        with torch.no_grad():
            wanted = rewards[drawn] + 0.9 * target(later.index_select(0, drawn)).max(1).values
        losses = update(optimizer, functional.smooth_l1_loss(model(states[drawn])[:, 0], wanted))
        if i % 4 == 3:
            target.load_state_dict(model.state_dict())
        return losses

    return step, (model, target, optimizer, states, later, rewards)


class Block(nn.Module):
    def __init__(self, inside, heads=4):
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(inside), nn.LayerNorm(inside)
        self.query_key_value, self.out = nn.Linear(inside, 3 * inside), nn.Linear(inside, inside)
        self.up, self.down = nn.Linear(inside, 4 * inside), nn.Linear(4 * inside, inside)

    def forward(self, x, cache=None):
        rows, length, inside = x.shape
        q, k, v = (part.view(rows, length, self.heads, inside // self.heads).transpose(1, 2)
                   for part in self.query_key_value(self.norm_1(x)).chunk(3, -1))
        if cache is not None:
            k, v = (torch.cat([*old, new], 2) for old, new in zip(cache or ([], []), (k, v)))
            cache[:] = [k], [v]
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, inside))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Decoder(nn.Module):
    def __init__(self, layers, inside=128):
        super().__init__()
        self.words, self.places = nn.Embedding(words, inside), nn.Embedding(64, inside)
        self.blocks = nn.ModuleList(Block(inside) for _ in range(layers))
        self.head = nn.Linear(inside, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, text, caches=None, begin=0):
        x = self.words(text) + self.places(torch.arange(begin, begin + text.shape[1], device=text.device))
        for number, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[number])
        return self.head(x)


def decoder(place, layers, seed=1):
    torch.manual_seed(seed)
    return Decoder(layers).to(place.device)


def surprise(model, text):
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def generating_between_steps(place):
    model = decoder(place, 4)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def between(i):
        now, begin, said, caches = place.numbers(words, 1, 4, seed=i), 0, [], [[] for _ in model.blocks]
        with torch.inference_mode():
            for _ in range(12 if i % 2 else 0):
                scores = model(now, caches, begin)
                begin, now = begin + now.shape[1], scores[:, -1:].argmax(-1)
                said.append(now.item())
        return said

    return lambda i: update(optimizer, surprise(model, place.numbers(words, 4, 33, seed=i))), (model, optimizer), between


def of_ever_other_lengths(place):
    model = decoder(place, 3)
    optimizer = adam(model)
    place.watch(model, optimizer)
    return lambda i: update(optimizer, surprise(model, place.numbers(words, 4, (9, 32, 18, 25)[i % 4], seed=i))), (model, optimizer)


def distilled(place):
    teacher, student = decoder(place, 3).requires_grad_(False), decoder(place, 2, seed=2)
    optimizer = adam(student, fused=True)
    place.watch(teacher, student, optimizer)

    def step(i):
        text = place.numbers(words, 4, 33, seed=i)
        with torch.no_grad():
            wanted = functional.log_softmax(teacher(text) / 2, -1)
        return update(optimizer, functional.kl_div(functional.log_softmax(student(text) / 2, -1), wanted, log_target=True,
                                                   reduction="batchmean"))

    return step, (student, optimizer)


def by_preferences(place):
    model = decoder(place, 3)
    reference, optimizer = copy.deepcopy(model).requires_grad_(False), adam(model)
    place.watch(model, reference, optimizer)

    def log_of(of, text):
        return of(text[:, :-1]).log_softmax(-1).gather(2, text[:, 1:, None])[..., 0].sum(1)

    def step(i):
        better, worse = place.numbers(words, 4, 33, seed=i), place.numbers(words, 4, 25, seed=100 + i)
        with torch.no_grad():
            before = log_of(reference, better) - log_of(reference, worse)
        return update(optimizer, -functional.logsigmoid(0.1 * (log_of(model, better) - log_of(model, worse) - before)).mean())

    return step, (model, optimizer)


def with_hooks(place):
    model, seen = perceptron(place), {}
    optimizer = adam(model)
    place.watch(model, optimizer)

    def clip(parameter):
        parameter.grad.clamp_(-0.01, 0.01)

    for number, layer in enumerate(model[::2]):
        layer.register_forward_hook(lambda _, inputs, out, number=number: seen.update({number: out.detach()}))
        layer.register_full_backward_hook(lambda _, into, out, number=number: seen.update({-1 - number: out[0].norm()}))
        layer.weight.register_post_accumulate_grad_hook(clip)

    def step(i):
        losses = update(optimizer, error(model, place.random(64, width, seed=i)))
        return losses + [value.sum().item() for value in seen.values()]

    return step, (model, optimizer)


def an_optimizer_for_each_parameter(place):
    model = perceptron(place)
    optimizers = {parameter: torch.optim.AdamW([parameter], lr=1e-3) for parameter in model.parameters()}
    place.watch(model, *optimizers.values())

    def apply(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(apply)

    def step(i):
        loss = error(model, place.random(64, width, seed=i))
        loss.backward()
        return [loss.item()]

    return step, (model, *optimizers.values())


def batches_ahead_on_a_stream(place):
    model, on_gpu, ready = perceptron(place, 4), place.kind != "cpu", queue.Queue(2)
    optimizer, stream = adam(model), torch.cuda.Stream() if on_gpu else None
    place.watch(model, optimizer)

    def load():
        for number in range(steps + 1):
            ready.put(torch.randn(64, width, generator=torch.Generator().manual_seed(number)))

    def batch():
        loaded = ready.get()
        if not on_gpu:
            return loaded
        with torch.cuda.stream(stream):
            return loaded.pin_memory().to(place.device, non_blocking=True)

    threading.Thread(target=load).start()
    ahead = [batch()]

    def step(i):
        x = ahead.pop()
        if on_gpu:
            torch.cuda.current_stream().wait_stream(stream)
            x.record_stream(torch.cuda.current_stream())
        ahead.append(batch())
        return update(optimizer, error(model, x))

    return step, (model, optimizer)


def quantized_while_it_trains(place):
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(context, weight):
            scale = weight.abs().amax(1, keepdim=True) / 127
            context.save_for_backward(weight.abs() < 127 * scale)
            return (weight / scale).round() * scale

        @staticmethod
        def backward(context, gradient):
            return gradient * context.saved_tensors[0]

    model = perceptron(place, 4)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def step(i):
        h = x = place.random(64, width, seed=i)
        for layer in model:
            h = functional.linear(h, Rounded.apply(layer.weight), layer.bias) if isinstance(layer, nn.Linear) else layer(h)
        return update(optimizer, (h - x).square().mean())

    return step, (model, optimizer)


def that_grows_and_thaws(place):
    model = perceptron(place, 4)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def between(i):
        if i in (2, 6):
            model[0].requires_grad_(i == 6)
        if i == 4:
            torch.manual_seed(7)
            model.append(nn.Linear(width, width).to(place.device))
            optimizer.add_param_group({"params": model[-1].parameters(), "lr": 1e-4})
            place.watch(model)
        return []

    return lambda i: update(optimizer, error(model, place.random(64, width, seed=i))), (model, optimizer), between


def resumed_in_place(place):
    model, kept = perceptron(place, 4), io.BytesIO()
    optimizer = adam(model)
    place.watch(model, optimizer)

    def between(i):
        if i == 3:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, kept)
        if i == 6:
            kept.seek(0)
            loaded = torch.load(kept, map_location=place.device)
            model.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])
        return []

    return lambda i: update(optimizer, error(model, place.random(64, width, seed=i))), (model, optimizer), between


def steps_that_give_up(place):
    model = perceptron(place, 4)
    optimizer = adam(model)
    place.watch(model, optimizer)

    def step(i):
        loss = error(model, place.random(64, width, seed=i) * (float("nan") if i in (3, 5) else 1))
        if not math.isfinite(loss.item()):
            raise ArithmeticError(f"step {i}")
        return update(optimizer, loss)

    return step, (model, optimizer)


def beside_an_evaluation(place):
    model, other = perceptron(place, 4), perceptron(place, 3, seed=9)
    optimizer, evaluated = adam(model), []
    place.watch(model, optimizer)

    def evaluate():
        with torch.no_grad():
            evaluated.extend(other(place.random(32, width, seed=number)).sum().item() for number in range(12))

    thread = threading.Thread(target=evaluate)
    thread.start()

    def between(i):
        if i < steps - 1:
            return []
        thread.join()
        return evaluated

    return lambda i: update(optimizer, error(model, place.random(64, width, seed=i))), (model, optimizer), between


def masked_attention(place):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).to(place.device)
    optimizer = adam(model)
    place.watch(model, optimizer)
    padding = (torch.arange(24)[None] >= torch.tensor([24, 20, 16, 9])[:, None]).to(place.device)

    def step(i):
        y = model(place.random(4, 24, 128, seed=i), src_key_padding_mask=padding)
        return update(optimizer, y.masked_fill(padding[..., None], 0).square().mean())

    return step, (model, optimizer)


def orthogonal_updates(place):
    model = perceptron(place, 4)
    matrices = torch.optim.Muon([parameter for parameter in model.parameters() if parameter.ndim == 2], lr=0.02)
    others = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.ndim == 1], lr=1e-3)
    place.watch(model, matrices, others)
    return lambda i: update(matrices, error(model, place.random(64, width, seed=i)), others), (model, matrices)


all_loops = [value for name, value in list(globals().items())
             if getattr(value, "__module__", None) == __name__ and getattr(getattr(value, "__code__", None), "co_varnames", ())[:1] == ("place",)
             and value.__code__.co_argcount == 1]
