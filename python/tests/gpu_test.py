"""A guard of GPU memory in Python, on the simulated GPU of src/simulated_gpu: the bits of the plain run, by a plan."""

import contextlib
import copy
import pickle
import sys
import tempfile
import threading
import time

import on_simulated_gpu


def train(guard=None):
    import torch

    torch.manual_seed(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    if guard:
        guard.watch(model)
        guard.watch(optimizer)
    losses = []
    for step in range(8):
        with guard.step() if guard else contextlib.nullcontext():
            x = torch.randn(512, 256, generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, x
    return losses, [parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters()]


def train_table(guard=None):
    import torch

    torch.manual_seed(2)
    table = torch.nn.Embedding(1 << 16, 64, sparse=True).to("cuda")  # 16 MiB
    optimizer = torch.optim.SGD(table.parameters(), lr=0.5)
    if guard:
        guard.watch(table)
    losses = []
    for step in range(6):
        with guard.step() if guard else contextlib.nullcontext():
            rows = torch.randint(0, 1 << 16, (256,), generator=torch.Generator().manual_seed(step)).to("cuda")
            loss = (table(rows) - 1).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            del loss, rows
    return losses, table.weight.detach().cpu().numpy().tobytes()


def convolve(device):
    """Also images and filters of one pixel, whose layout is whatever a kernel says."""
    import itertools

    import torch

    torch.manual_seed(3)
    seen = []
    for images, channels, filters, size, pixels in itertools.product((1, 2), (1, 3, 16), (1, 4, 16), (1, 3), (1, 2)):
        layer = torch.nn.Conv2d(channels, filters, size, padding=size // 2)
        start = torch.randn(images, channels, pixels, pixels)
        layer.to(device)
        for _ in range(3):  # the first call of a shape learns its results
            x = start.detach().clone().to(device).requires_grad_()
            y = layer(x)
            y.square().sum().backward()
            seen += [t.detach().cpu().numpy().tobytes() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)]
    return seen


def differentiate_forward(device):
    import torch

    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    x, tangent = torch.randn(16, 32), torch.randn(16, 32)
    model, x, tangent = model.to(device), x.to(device), tangent.to(device)

    def loss(x):
        return model(x).square().mean()

    results = []
    for _ in range(2):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.unpack_dual(loss(torch.autograd.forward_ad.make_dual(x, tangent)))
            results += [dual.primal, dual.tangent]
        results += [torch.func.jvp(loss, (x,), (tangent,))[1], torch.func.grad(loss)(x)]
        results += [torch.func.vmap(loss)(x), torch.func.jacfwd(lambda x: model(x).sum(0))(x[:2])]
    return [result.detach().cpu().numpy().tobytes() for result in results]


def copy_in_backward(device):
    """With Python's lock, on autograd's thread: numbers on the host are let go of while the device has yet to use them."""
    import torch

    class Copies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            for i in range(20):
                rows = torch.arange(i, i + 10)
                gradient = gradient.index_put((rows % gradient.shape[0],), gradient[rows % gradient.shape[0]] + i)
                del rows
                torch.ones(100 + i).untyped_storage().to(device=device)
            return gradient

    x = torch.ones(64, 64, device=device, requires_grad=True)
    for _ in range(5):
        Copies.apply(x).sum().backward()
    return x.grad.cpu().numpy().tobytes()


def device():
    """The device alone has the processor's bits."""
    for program in (convolve, differentiate_forward, copy_in_backward):
        assert program("cuda") == program("cpu"), program


class Training:
    """A perceptron and its optimizer, of which much is away after each step under a third of their peak."""

    def __init__(self, guard=None, layers=8):
        import torch

        torch.manual_seed(1)
        layers = [layer for _ in range(layers) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
        self.guard = guard
        self.model = torch.nn.Sequential(*layers).to("cuda")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, foreach=False)
        if guard:
            guard.watch(self.model)
            guard.watch(self.optimizer)

    def step(self, i, inside=lambda: None):
        import torch

        with self.guard.step() if self.guard else contextlib.nullcontext():
            x = torch.randn(512, 256, generator=torch.Generator().manual_seed(i)).to("cuda")
            loss = (self.model(x) - x).square().mean()
            loss.backward()
            inside()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.item()

    def tensors(self):
        weights = dict(self.model.state_dict())
        for i, state in enumerate(self.optimizer.state.values()):
            weights |= {f"{i}.{key}": tensor for key, tensor in state.items() if tensor.dim() > 0}
        return weights

    def numbers(self):
        return {name: tensor.detach().cpu().clone() for name, tensor in self.tensors().items()}


def peak_of_training():
    import vedette

    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        training = Training(guard)
        for i in range(3):
            training.step(i)
        return guard.counters.peak_bytes


def away(tensors):
    import torch

    return sum(torch._C.TensorBase.data_ptr(tensor) == 0 for tensor in tensors)  # libtorch's own


def same(some, others):
    import torch

    return some.keys() == others.keys() and all(torch.equal(some[name].cpu(), others[name].cpu()) for name in some)


def ways_to_save(folder):
    """By name: what gives the numbers of a dictionary of tensors back, by way of their storages."""
    import torch
    import torch.distributed.checkpoint as dcp

    def file(**options):
        def save(tensors):
            torch.save(tensors, folder + "/file", **options)
            return torch.load(folder + "/file", map_location="cpu")

        return save

    def in_a_thread(tensors):
        saved = {}
        thread = threading.Thread(target=lambda: saved.update(file()(tensors)))
        thread.start()
        thread.join()
        return saved

    def distributed(tensors):
        dcp.save(dict(tensors), checkpoint_id=folder + "/dcp", no_dist=True)
        loaded = {name: torch.zeros(tensor.shape) for name, tensor in tensors.items()}
        dcp.load(loaded, checkpoint_id=folder + "/dcp", no_dist=True)
        return loaded

    def storages(read):
        def save(tensors):
            return {name: torch.empty(0, dtype=tensor.dtype).set_(read(tensor.untyped_storage()), 0, tensor.shape)
                    for name, tensor in tensors.items()}

        return save

    ways = {"torch.save": file(), "the format before 1.6": file(_use_new_zipfile_serialization=False), "in a thread": in_a_thread,
            "pickle": lambda tensors: pickle.loads(pickle.dumps(tensors)), "deepcopy": copy.deepcopy,
            "one by one": lambda tensors: {name: pickle.loads(pickle.dumps(tensor)) for name, tensor in tensors.items()},
            "storage.cpu()": storages(lambda storage: storage.cpu()), "storage.clone()": storages(lambda storage: storage.clone().cpu()),
            "storage.to()": storages(lambda storage: storage.to(device="cuda").cpu()),
            "storage.cuda()": storages(lambda storage: copy.deepcopy(storage.cuda()).cpu()),
            "storage.copy_()": storages(lambda storage: torch.UntypedStorage(storage.nbytes()).copy_(storage)),
            "copy_() on the device": storages(lambda storage: torch.UntypedStorage(storage.nbytes(), device="cuda").copy_(storage).cpu()),
            "copy_() into it": storages(lambda storage: storage.copy_(storage.cpu()).cpu()),
            "resize_(), away": storages(lambda storage: (storage.resize_(storage.nbytes() + 512), storage.cpu())[1]),
            "torch.distributed.checkpoint": distributed}
    with contextlib.suppress(ImportError):
        import safetensors.torch as safetensors

        def save_file(tensors):
            safetensors.save_file(dict(tensors), folder + "/file.safetensors")
            return safetensors.load_file(folder + "/file.safetensors")

        ways["safetensors"] = save_file
        ways["safetensors in memory"] = lambda tensors: safetensors.load(safetensors.save(dict(tensors)))
    return ways


def storages_in_python():
    """torch.save and others find every number, between steps and inside, and the training goes on with the plain run's bits."""
    import torch
    import vedette

    names = list(ways_to_save("").keys())
    plain = Training()
    numbers = []
    for i in range(5 + len(names)):
        plain.step(i, lambda: numbers.append(plain.numbers()))
    with tempfile.TemporaryDirectory() as folder, vedette.Guard(peak_of_training() // 3, fast="gpu:0", slow="host") as guard:
        training = Training(guard)
        for i in range(5):
            training.step(i)
        for i, name in enumerate(names):
            def check(numbers_now):
                tensors = training.tensors()
                assert away(tensors.values()) > 0, "nothing is away: the test shows nothing"
                saved = ways_to_save(folder)[name](tensors)
                assert same(saved, numbers_now), name

            inside = numbers[5 + i]
            training.step(5 + i, lambda: check(inside))
            check(training.numbers())
        assert same(training.numbers(), plain.numbers())
        assert guard.counters.resident_max_bytes <= guard.budget


def addresses():
    """data_ptr() tells storages apart, also those that are away, and one that is asked for alone may be used."""
    import torch
    import vedette

    with vedette.Guard(peak_of_training() // 3, fast="gpu:0", slow="host") as guard:
        training = Training(guard)
        for i in range(5):
            training.step(i)
        tensors = list(training.tensors().values())
        assert away(tensors) > 0
        before = {}
        for tensor in tensors:  # operators in between: what came for one has another's place
            address = tensor.untyped_storage().data_ptr()
            assert address not in before, "two storages with one address"
            assert address != 0 and tensor.data_ptr() == address == tensor.storage().data_ptr()
            assert tensor.view(-1)[3:].data_ptr() == address + 3 * tensor.element_size()
            before[address] = tensor.cpu()
        training.step(5)
        one = next(tensor for tensor in tensors if away([tensor]))
        assert one.data_ptr() == torch._C.TensorBase.data_ptr(one), "it did not come"

        # Memory that another library has does not move any more, and both see what either writes.
        one = next(tensor.detach() for tensor in tensors if away([tensor]))
        part, other = one.untyped_storage()[16:32], torch.from_dlpack(one)
        interface = one.__cuda_array_interface__["data"][0]
        for i in range(6, 10):
            training.step(i)
        assert torch.equal(other, one) and other.data_ptr() == interface == torch._C.TensorBase.data_ptr(one)
        assert part.cpu().tolist() == one.untyped_storage().cpu().tolist()[16:32]

        storage = next(tensor for tensor in tensors if away([tensor])).detach().clone().untyped_storage()
        numbers = storage.cpu()
        training.step(10)
        storage.resize_(storage.nbytes() * 2)
        assert storage.cpu().tolist()[:numbers.nbytes()] == numbers.tolist()
        storage.resize_(0)
        try:
            tensors[0].untyped_storage()._share_cuda_()
            raise AssertionError("a tensor that moves was given to another process")
        except vedette.Failure as failure:
            assert "another process" in str(failure), failure
        plain = Training()
        for i in range(11):
            plain.step(i)
        assert same(training.numbers(), plain.numbers())


def exports():
    """What another library has stays where it is: while the guard moves others, when it ends, and under the next one."""
    import torch
    import vedette

    def address(tensor):
        return torch._C.TensorBase.data_ptr(tensor)

    said = []
    budget = peak_of_training() // 3
    with vedette.Guard(budget, fast="gpu:0", slow="host", on_message=said.append) as guard:
        training = Training(guard)
        for i in range(5):
            training.step(i)
        shared = [tensor.detach() for tensor in training.tensors().values() if away([tensor])][:3]
        interface = shared[0].__cuda_array_interface__["data"][0]
        other = torch.from_dlpack(shared[1])
        part = shared[2].untyped_storage()[16:32]
        were = [address(tensor) for tensor in shared]
        assert 0 not in were and were[:2] == [interface, other.data_ptr()] and part.data_ptr() == were[2] + 16
        training.step(5)
        guard.bring_home()
        assert [address(tensor) for tensor in shared] == were
    assert [address(tensor) for tensor in shared] == were, "the guard's end moved what another library has"
    assert sum("another library has" in sentence for sentence in said) == 1, said
    training.guard = None
    training.step(6)
    with vedette.Guard(budget, fast="gpu:0", slow="host", on_message=said.append) as guard:
        training.guard = guard
        guard.watch(training.model)
        guard.watch(training.optimizer)
        for i in range(7, 10):
            training.step(i)
        # These were exported before they were watched.
        given = [torch.full((1 << 16,), 5.0 + i) for i in range(2)]
    given = [tensor.to("cuda") for tensor in given]
    interface = given[0].__cuda_array_interface__["data"][0]
    other_library_has = torch.from_dlpack(given[1])
    before = [address(tensor) for tensor in given]
    with vedette.Guard(budget, fast="gpu:0", slow="host", on_message=said.append) as guard:
        for tensor in given:
            guard.watch(tensor)
        assert [address(tensor) for tensor in given] == before == [interface, other_library_has.data_ptr()]
    assert any("watch() before a library gets it" in sentence for sentence in said), said
    plain = Training()
    for i in range(10):
        plain.step(i)
    assert [address(tensor) for tensor in shared] == were
    assert torch.equal(other, shared[1]) and part.cpu().tolist() == shared[2].untyped_storage().cpu().tolist()[16:32]
    assert same(training.numbers(), plain.numbers())


def save_pretrained():
    """save_pretrained and safetensors' save_model, with tied weights and without."""
    try:
        import transformers
        from safetensors.torch import load_file, save_model
    except ImportError as missing:
        print(f"skipped: {missing}")
        return
    import torch
    import vedette

    transformers.logging.set_verbosity_error()

    def train(budget, tied, folder):
        torch.manual_seed(1)
        shape = transformers.LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=352, num_hidden_layers=6,
                                         num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=tied)
        with vedette.Guard(budget, fast="gpu:0", slow="host") as guard:
            model = transformers.LlamaForCausalLM(shape).to("cuda")
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
            guard.watch(model)
            guard.watch(optimizer)
            for i in range(5):
                with guard.step():
                    ids = torch.randint(3, 500, (4, 33), generator=torch.Generator().manual_seed(i)).to("cuda")
                    model(input_ids=ids, labels=ids).loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
            peak = guard.counters.peak_bytes
            if folder:
                assert away(model.parameters()) > 0, "nothing is away: the test shows nothing"
                model.save_pretrained(folder + "/model")
                save_model(model, folder + "/model.safetensors")
                numbers = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
                twins = {"lm_head.weight": "model.embed_tokens.weight", "model.embed_tokens.weight": "lm_head.weight"}  # if tied
                for file in ("/model/model.safetensors", "/model.safetensors"):
                    found = load_file(folder + file)
                    assert len(found) == len(numbers) - tied, file
                    assert same({name: found[name if name in found else twins[name]] for name in numbers}, numbers), file
            return peak

    for tied in (False, True):
        peak = train("256MiB", tied, None)
        with tempfile.TemporaryDirectory() as folder:
            train(peak // 4, tied, folder)


def train_in_half():
    import torch
    import vedette

    assert torch.cuda.is_available()
    plain = train()
    with vedette.Guard("256MiB", fast="gpu:0", slow="host") as guard:
        assert train(guard) == plain
        peak = guard.counters.peak_bytes
    with vedette.Guard(peak // 2, fast="gpu:0", slow="host", on_message=print) as guard:
        assert train(guard) == plain
        assert guard.phase == "planned", guard.phase
        assert guard.counters.bytes_in > 0
        print(f"{guard.mechanism}: {guard.budget >> 10} of {peak >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB")
    plain = train_table()
    try:
        vedette.Guard("16MiB", fast="gpu:0", slow="host", table_memory="16MiB")
        raise AssertionError("a table's memory leaves nothing of the budget")
    except vedette.Failure as failure:
        assert "table_memory" in str(failure), failure
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", table_memory="4MiB", on_message=print) as guard:
        assert train_table(guard) == plain
        assert torch.cuda.memory_allocated() < 16 << 20, "a table of 16 MiB has 4 MiB of the GPU"


def wrapped():
    """Trainings whose tensors stand inside of others have the plain run's bits at half of their memory."""
    import vedette
    from wrapped import trainings

    def train(kind, guard=None, steps=8):
        training = kind("cuda", guard.watch if guard else lambda tensor, name: None)
        numbers = []
        for i in range(steps):
            with guard.step() if guard else contextlib.nullcontext():
                numbers.append(training.step(i).tolist())
        return numbers

    for kind in [kind for kind in trainings if kind.on_simulated_gpu]:
        plain = train(kind)
        with vedette.Guard("256MiB", fast="gpu:0", slow="host", policy="on-demand") as guard:
            train(kind, guard, 3)
            peak = guard.counters.peak_bytes
        with vedette.Guard(peak // 2, fast="gpu:0", slow="host") as guard:
            assert train(kind, guard) == plain, kind.__name__
            print(f"{kind.__name__}: {guard.phase}, {peak // 2 >> 10} KiB, in {guard.counters.bytes_in >> 10} KiB", flush=True)
            assert guard.counters.bytes_in > 0 and guard.counters.resident_max_bytes <= guard.budget


def sizes_that_change():
    """Between operators, in a pass, and from another thread: the plain run's numbers, and the rest is free for others."""
    import random

    import torch
    import vedette

    steps = 14
    plain = Training()
    losses = [plain.step(i) for i in range(steps)]
    numbers = plain.numbers()
    del plain
    peak = peak_of_training()
    chosen = random.Random(7)

    def change(guard):
        size = chosen.randrange(peak * 2 // 5, peak * 6 // 5)
        guard.fast_memory = size
        return guard.fast_memory <= size

    with vedette.Guard(peak, fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        training, met, over = Training(guard), [], threading.Event()

        def changes_beside():
            while not over.is_set():
                met.append(change(guard))
                time.sleep(0.02)

        beside = threading.Thread(target=changes_beside)
        for i in range(steps):
            assert training.step(i, lambda: met.append(change(guard))) == losses[i], i
            met.append(change(guard))
            if i == steps // 2:
                beside.start()
        over.set()
        while beside.is_alive():  # a call that waits finds an operator
            torch.ones(1 << 18, device="cuda").add_(1)
        beside.join()
        assert same(training.numbers(), numbers)
        assert sum(met) > len(met) // 2, met
        guard.fast_memory = peak
        free = torch.cuda.mem_get_info()[0]
        guard.fast_memory = peak // 2
        assert torch.cuda.mem_get_info()[0] >= free + peak // 4, "others have the rest"


def late_writes_on_a_side_stream():
    """A program may give memory back, or to a guard, before a stream of its own has written there: what it reads behind that stream is new."""
    import torch
    import vedette

    side = torch.cuda.Stream()

    def write_late(weight, end):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for value in (1.0, 2.0, 3.0) * 8:
                weight.fill_(value)
        end()
        torch.cuda.current_stream().wait_stream(side)
        assert weight.eq(3).all().item()

    for how in ("bring_home", "close", "watch"):
        with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
            model = torch.nn.Linear(1024, 1024, device="cuda")
            if how != "watch":
                guard.watch(model)
            with guard.step():
                model(torch.ones(4, 1024, device="cuda")).sum().backward()
            write_late(model.weight, (lambda: guard.watch(model)) if how == "watch" else getattr(guard, how))
    with torch.no_grad():
        model = torch.nn.Linear(1024, 1024, device="cuda")
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        write_late(model.weight, lambda: guard.watch(model))


def homes_of_a_side_stream():
    """libtorch gives memory out again in the order of the stream on which its tensor was born, also once a guard gave it back."""
    import torch
    import vedette

    side, main, count = torch.cuda.Stream(), torch.cuda.current_stream(), 1 << 20
    for end in (vedette.Guard.bring_home, vedette.Guard.close):
        with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
            model = torch.nn.Module()
            with torch.cuda.stream(side), torch.no_grad():
                model.weight = torch.nn.Parameter(torch.ones(count, device="cuda"))
                guard.watch(model)
                model.weight.add_(1)
            main.wait_stream(side)
            end(guard)
        side.wait_stream(main)
        with torch.cuda.stream(side), torch.no_grad():
            read = torch.zeros(count, device="cuda")
            for _ in range(20):
                read += model.weight
        del model
        other = torch.zeros(count, device="cuda")  # in the same memory, were it this stream's
        main.wait_stream(side)
        assert read.eq(40).all().item(), end
        del other


def readers_on_a_side_stream():
    """A stream that is behind all that wrote a tensor reads it right after it was given back."""
    import torch
    import vedette

    side = torch.cuda.Stream()
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        model = torch.nn.Linear(1024, 1024, device="cuda")
        guard.watch(model)
        with guard.step():
            model(torch.ones(4, 1024, device="cuda")).sum().backward()
        side.wait_stream(torch.cuda.current_stream())
        guard.bring_home()
        with torch.cuda.stream(side), torch.no_grad():
            read = model.weight.sum()
        torch.cuda.current_stream().wait_stream(side)
        assert torch.equal(read, model.weight.sum())


def two_devices_in_backward():
    """Autograd has a thread for each device: the optimizer steps one parameter at a time, and keeps its groups."""
    import torch
    import vedette

    def train(within, guard=None):
        torch.manual_seed(1)
        parts = [torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(8)).to(device) for device in ("cpu", "cuda")]
        parameters = [parameter for part in parts for parameter in part.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
        if guard:
            guard.watch(parts[1])
        for _ in range(3):
            with guard.step() if guard else contextlib.nullcontext():
                a, b = torch.ones(8, 64), torch.ones(8, 64, device="cuda")
                for one, other in zip(*parts):
                    a, b = torch.relu(one(a)), torch.relu(other(b))
                loss = a.sum() + b.sum().cpu()
                if within:
                    vedette.step_in_backward(optimizer, loss.backward)
                    assert len(optimizer.param_groups[0]["params"]) == len(parameters)
                else:
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return [parameter.detach().cpu().numpy().tobytes() for parameter in parameters]

    plain = train(False)
    sys.setswitchinterval(1e-5)
    assert train(True) == plain
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        assert train(True, guard) == plain


def side_streams_at_rest():
    """Where nothing moves no operator is announced. A tensor of a stream of the program's own, which alone used it, dies there; and what
    that stream writes is whole where the guard gives it back."""
    import torch
    import vedette

    side, count = torch.cuda.Stream(), 1 << 18

    def train(guard, end, steps=500):
        main = torch.cuda.current_stream()
        model = torch.nn.Module()
        model.weight = torch.nn.Parameter(torch.randn(count, generator=torch.Generator().manual_seed(1)).to("cuda"))
        side.wait_stream(main)
        with torch.cuda.stream(side):
            model.register_buffer("average", torch.zeros(count, device="cuda"))
            means = [torch.ones(count, device="cuda") for _ in range(2)]
        if guard:
            guard.watch(model)
        at_rest = 0
        for step in range(steps):
            before = guard.counters.ops if guard else 0
            with guard.step() if guard else contextlib.nullcontext(), torch.no_grad():
                a = model.weight * 2
                rest = [a + i for i in range(3)]
                main.wait_stream(side)
                model.weight.mul_(0.999)
                del a, rest
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    means = [mean * 0.9 + 0.1 for mean in means]  # an old one was born here, and used here alone
                    for _ in range(20):
                        model.average.mul_(0.9).add_(model.weight, alpha=0.1)
            at_rest += guard is not None and guard.counters.ops == before
            if at_rest == 15:
                break
        if guard:
            assert at_rest == 15, "the session does not rest"
            end(guard)
        main.wait_stream(side)
        return step + 1, [tensor.sum().item() for tensor in (model.weight, model.average, *means)]

    for end in (vedette.Guard.bring_home, vedette.Guard.close):
        with vedette.Guard("40MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
            steps, guarded = train(guard, end)
        assert (steps, guarded) == train(None, None, steps), end


def an_operator_that_runs_backward():
    """Its kernel is Python's, and autograd's thread for the device runs the pass while the operator waits for it."""
    import torch
    import vedette

    library = torch.library.Library("gpu_test_of_passes", "DEF")
    library.define("penalty(Tensor x) -> Tensor")

    def penalty(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad((y * y).sum(), y)
        return gradient.square().sum()

    library.impl("penalty", penalty, "CUDA")

    def train(guard=None):
        torch.manual_seed(1)
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(6)]).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
        if guard:
            guard.watch(model)
        losses = []
        for step in range(6):
            with guard.step() if guard else contextlib.nullcontext():
                loss = model(torch.ones(64, 512, device="cuda")).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    losses.append((loss.item(), [torch.ops.gpu_test_of_passes.penalty(layer.weight).item() for layer in model]))
                del loss
        return losses

    plain = train()
    with vedette.Guard("6MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        assert train(guard) == plain
        assert guard.counters.bytes_in > 0


def an_operator_that_wakes_the_guard():
    """A birth without room in an operator that is not heard: the operator's tensors stay until it has ended."""
    import torch
    import vedette

    seen = []

    @torch.library.custom_op("gpu_test::in_pieces", mutates_args=())
    def in_pieces(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch._C.TensorBase.data_ptr(x))
        first = torch.empty(1 << 19, device="cuda")
        first.fill_(1)
        others = [torch.empty(1 << 18, device="cuda") for _ in range(6)]
        seen.append(torch._C.TensorBase.data_ptr(x))  # a kernel would be launched with it
        del others
        return first

    with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None) as guard:
        x, weight = (torch.full((1 << 18,), value, device="cuda") for value in (2.0, 1.0))
        for _ in range(60):
            with guard.step():
                (weight * 2).sigmoid().sum()
        heard = guard.counters.ops
        kept = [torch.zeros(1 << 18, device="cuda") for _ in range(13)]
        assert guard.counters.ops == heard, "it does not rest"
        for _ in range(2):
            with guard.step(), torch.no_grad():
                in_pieces(x)
        assert seen[0] == seen[1] != 0 and seen[2] == seen[3] != 0, seen
        assert x.eq(2).all().item() and len(kept) == 13


def long_lists_with_numbers():
    import torch
    import vedette

    def work():
        tensors = [torch.full((1024, 256), 2.0, device="cuda") for _ in range(4)]
        torch._foreach_pow_(tensors, [2.0, 3.0, 1.0, 0.0])
        torch._foreach_lerp_(tensors, [torch.ones_like(tensor) for tensor in tensors], [0.5, 0.25, 1.0, 0.0])
        torch._foreach_add_(tensors, [1.0, 2.0, 3.0, 4.0])
        return [tensor.cpu().numpy().tobytes() for tensor in tensors]

    plain = work()
    with vedette.Guard("16MiB", fast="gpu:0", slow="host", on_message=lambda line: None):
        assert work() == plain


class OnASimulatedGpu(on_simulated_gpu.Processes):
    functions = (train_in_half, device, storages_in_python, addresses, exports, wrapped, sizes_that_change, save_pretrained,
                 late_writes_on_a_side_stream, side_streams_at_rest, readers_on_a_side_stream, homes_of_a_side_stream, two_devices_in_backward,
                 an_operator_that_runs_backward, an_operator_that_wakes_the_guard, long_lists_with_numbers)

    def test_has_equal_bits(self):
        self.run_there(train_in_half)

    def test_the_device_alone_has_the_processors_bits(self):
        self.run_there(device)

    def test_saves_every_number_of_what_is_away(self):
        self.run_there(storages_in_python)

    def test_tells_storages_apart_by_their_addresses(self):
        self.run_there(addresses)

    def test_leaves_what_other_libraries_have_where_it_is(self):
        self.run_there(exports)

    def test_trains_what_stands_inside_of_other_tensors(self):
        self.run_there(wrapped)

    def test_changes_its_size_while_it_trains(self):
        self.run_there(sizes_that_change)

    def test_saves_a_pretrained_model(self):
        self.run_there(save_pretrained)

    def test_moves_behind_the_programs_other_streams(self):
        self.run_there(late_writes_on_a_side_stream)

    def test_rests_behind_the_programs_other_streams(self):
        self.run_there(side_streams_at_rest)

    def test_gives_tensors_back_to_readers_on_any_stream(self):
        self.run_there(readers_on_a_side_stream)

    def test_memory_that_a_guard_gives_back_is_its_streams(self):
        self.run_there(homes_of_a_side_stream)

    def test_steps_in_backward_on_two_devices(self):
        self.run_there(two_devices_in_backward)

    def test_runs_operators_that_run_a_backward_pass(self):
        self.run_there(an_operator_that_runs_backward)

    def test_leaves_an_unheard_operators_tensors_in_place(self):
        self.run_there(an_operator_that_wakes_the_guard)

    def test_takes_long_lists_with_numbers_apart(self):
        self.run_there(long_lists_with_numbers)


if __name__ == "__main__":
    on_simulated_gpu.run_each(globals())
