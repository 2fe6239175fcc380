"""Trainings whose tensors stand inside of others: transforms of torch.func, dual numbers, nested tensors, subclasses, sparse tensors.

Each class makes its tensors on a device; step(i) gives a tensor of numbers.
"""

import torch
from torch import func, nn
from torch.autograd import forward_ad

width = 192


def random(device, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device) / shape[-1] ** 0.5


class Trained:
    """A perceptron of eight layers, stepped by hand."""

    on_simulated_gpu = True  # it has the kernels

    def __init__(self, device, watch):
        self.device = device
        self.weights = {f"layer{i}": nn.Parameter(random(device, width, width, seed=i)) for i in range(8)}
        for name, weight in self.weights.items():
            watch(weight, name + ".weight")

    def forward(self, weights, x):
        for weight in weights.values():
            x = (x @ weight).tanh()
        return x

    def loss(self, weights, x):
        return (self.forward(weights, x) - x).square().mean()

    def batch(self, i, rows=96):
        return random(self.device, rows, width, seed=100 + i) * width ** 0.5

    def update(self, gradients):
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight -= 0.05 * gradients[name]

    def numbers(self):
        return torch.stack([weight.detach().double().sum().cpu() for weight in self.weights.values()])


class Grad(Trained):
    def step(self, i):
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        self.update(func.grad(self.loss)(detached, self.batch(i)))
        return self.numbers()


class GradOfEachRow(Trained):
    def step(self, i):
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        each = func.vmap(func.grad(self.loss), in_dims=(None, 0))(detached, self.batch(i, 6).unsqueeze(1))
        self.update({name: gradient.mean(0) for name, gradient in each.items()})
        return self.numbers()


class Jvp(Trained):
    """Gradients by a forward pass along a direction."""

    def step(self, i):
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        along = {name: random(self.device, width, width, seed=9 * i + n) for n, name in enumerate(detached)}
        x = self.batch(i)
        _, slope = func.jvp(lambda weights: self.loss(weights, x), (detached,), (along,))
        self.update({name: slope * direction for name, direction in along.items()})
        return self.numbers()


class DualNumbers(Trained):
    def step(self, i):
        with forward_ad.dual_level():
            duals = {name: forward_ad.make_dual(weight.detach(), random(self.device, width, width, seed=9 * i + n))
                     for n, (name, weight) in enumerate(self.weights.items())}
            y = self.forward(duals, self.batch(i)).mul_(0.5)
            value, slope = forward_ad.unpack_dual(y)
            slope = (value * slope).mean()
            self.update({name: slope * forward_ad.unpack_dual(dual).tangent for name, dual in duals.items()})
        return self.numbers()


class ForwardOverReverse(Trained):
    def step(self, i):
        x = self.batch(i)
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        gradients, curved = func.jvp(func.grad(lambda weights: self.loss(weights, x)), (detached,), (detached,))
        self.update({name: gradient + 0.1 * curved[name] for name, gradient in gradients.items()})
        return self.numbers()


class Jacobian(Trained):
    """Forward mode under vmap: the value is plain, its tangent is batched."""

    def step(self, i):
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        x = self.batch(i, 8)
        along = func.jacfwd(lambda scale: self.forward({name: weight * scale.sum() for name, weight in detached.items()}, x))(
            torch.ones(6, device=self.device) / 6)
        self.update({name: along.mean() * weight for name, weight in detached.items()})
        return self.numbers()


class Hessian(Trained):
    """Forward mode over reverse mode under vmap."""

    def step(self, i):
        detached = {name: weight.detach() for name, weight in self.weights.items()}
        x = self.batch(i, 8)
        curved = func.hessian(lambda scale: self.loss({name: weight * scale.sum() for name, weight in detached.items()}, x))(
            torch.ones(4, device=self.device) / 4)
        self.update({name: curved.mean() * weight for name, weight in detached.items()})
        return self.numbers()


class BatchedBackward(Trained):
    def step(self, i):
        y = self.forward(self.weights, self.batch(i, 16)).mean(0)
        rows = torch.eye(width, device=self.device)[:5]
        each = torch.autograd.grad(y, list(self.weights.values()), rows, is_grads_batched=True)
        self.update({name: gradient.mean(0) for name, gradient in zip(self.weights, each)})
        return self.numbers()


class Learned(Trained):
    """Trained by backward()."""

    def step(self, i):
        loss = self.value(self.batch(i), i)
        loss.backward()
        self.update({name: weight.grad for name, weight in self.weights.items()})
        for weight in self.weights.values():
            weight.grad = None
        return self.numbers()


class Jagged(Learned):
    layout = torch.jagged

    def value(self, x, i):
        rows = [x[begin:end].detach() for begin, end in ((0, 7 + i), (7 + i, 40), (40, len(x)))]
        y = torch.nested.nested_tensor(rows, layout=self.layout)
        for weight in self.weights.values():
            y = torch.relu(nn.functional.linear(y, weight)) + y
        return y.values().square().mean() if self.layout is torch.jagged else torch.nested.to_padded_tensor(y, 0.0).square().mean()


class Nested(Jagged):
    layout, on_simulated_gpu = torch.strided, False


class Scaled(torch.Tensor):
    """A weight as numbers and scales of its rows: a wrapper subclass, as those of quantized weights are."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=numbers.dtype, device=numbers.device, requires_grad=False)

    def __init__(self, numbers, scale):
        self.inner, self.scale = numbers, scale

    def __tensor_flatten__(self):
        return ["inner", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner, _, size, stride):
        return Scaled(inner["inner"], inner["scale"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].scale)
        return function(*[a.inner * a.scale if isinstance(a, cls) else a for a in args], **(kwargs or {}))


class Subclass(Learned):
    def __init__(self, device, watch):
        super().__init__(device, watch)
        self.frozen = [Scaled(random(device, width, width, seed=50 + i), torch.ones(width, 1, device=device)) for i in range(6)]

    def value(self, x, i):
        for weight, frozen in zip(self.weights.values(), self.frozen + self.frozen[:2]):
            x = (x @ weight).tanh() + x @ frozen
        return x.square().mean()


class Wrapper(torch.Tensor):
    """Of a tensor in an attribute that nothing names: no __tensor_flatten__."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device, requires_grad=False)

    def __init__(self, held):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].held)
        return function(*[a.held if isinstance(a, cls) else a for a in args], **(kwargs or {}))


class Named(Wrapper):
    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner, _, size, stride):
        return Named(inner["held"])


class SubclassWithoutNames(Subclass):
    def __init__(self, device, watch):
        super().__init__(device, watch)
        self.frozen = [Wrapper(random(device, width, width, seed=50 + i)) for i in range(6)]


class SubclassInSubclass(Subclass):
    def __init__(self, device, watch):
        super().__init__(device, watch)
        self.frozen = [Named(each) for each in self.frozen]


class Quantized(Scaled):
    """Whole numbers of eight bits, as torch.ao's, with another type and layout than the weight shows."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype, device=numbers.device, requires_grad=False)


class QuantizedSubclass(Subclass):
    def __init__(self, device, watch):
        super().__init__(device, watch)
        weights = [random("cpu", width, width, seed=50 + i) for i in range(6)]
        scales = [weight.abs().amax(1, keepdim=True) / 127 for weight in weights]
        self.frozen = [Quantized((w / s).round().to(torch.int8).to(device), s.to(device)) for w, s in zip(weights, scales)]


class Held(Learned):
    """Sparse and nested tensors whose parts are read and written; the simulated GPU has no products of them."""

    def __init__(self, device, watch):
        super().__init__(device, watch)
        some = [random("cpu", 96, 96, seed=70 + i) for i in range(8)]
        ways = [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, lambda tensor: tensor.to_sparse_bsr((8, 8))]
        self.held = [ways[i % 3](tensor).to(device) for i, tensor in enumerate(some[:6])]
        self.held += [torch.nested.nested_tensor([tensor[:40 + i].to(device), tensor[40 + i:].to(device)])
                      for i, tensor in enumerate(some[6:])]

    def value(self, x, i):
        for weight, held in zip(self.weights.values(), self.held):
            parts = held.unbind() if held.is_nested else [held.clone().values() if held.layout != torch.sparse_coo else held._values()]
            with torch.no_grad():
                parts[0].mul_(1.01)
            x = torch.tanh(x @ weight) + sum(part.sum() for part in parts) * 1e-3
        return x.square().mean()


class Sparse(Learned):
    on_simulated_gpu = False

    def __init__(self, device, watch):
        super().__init__(device, watch)
        dense = [random("cpu", 96, 96, seed=70 + i) * (random("cpu", 96, 96, seed=80 + i) > 0) for i in range(6)]
        self.graphs = [(each.to_sparse() if i % 2 else each.to_sparse_csr()).to(device) for i, each in enumerate(dense)]

    def value(self, x, i):
        for n, weight in enumerate(self.weights.values()):
            x = torch.tanh(x @ weight) + self.graphs[n % 6] @ x
        return x.square().mean()


class DualWeightsInSubclass(DualNumbers):
    """Tangents that are wrapper subclasses: operators of theirs are called by an op whose value is plain."""

    def step(self, i):
        with forward_ad.dual_level():
            tangents = {name: Scaled(random(self.device, width, width, seed=9 * i + n), torch.ones(width, 1, device=self.device))
                        for n, name in enumerate(self.weights)}
            duals = {name: forward_ad.make_dual(weight.detach(), tangents[name]) for name, weight in self.weights.items()}
            y = self.forward(duals, self.batch(i))
            value, slope = forward_ad.unpack_dual(y)
            self.update({name: (value * slope).mean() * tangent.inner for name, tangent in tangents.items()})
        return self.numbers()


trainings = [Grad, GradOfEachRow, Jvp, DualNumbers, ForwardOverReverse, Jacobian, Hessian, BatchedBackward, Jagged, Nested, Subclass,
             SubclassWithoutNames, SubclassInSubclass, QuantizedSubclass, Sparse, Held, DualWeightsInSubclass]
