#!/usr/bin/env python3
"""Fetches the public inputs of `vedette reproduce` (docs/reproduce.md): steps to plan, lifetimes to place.

    fetch_traces.py [--output data] [--only bert_base-256,vit-1024,pack] [--from DIRECTORY] [--github URL]

Below --output appear traces/g10/*.json and traces/g10_published.csv, which `vedette reproduce g10` reads, and pack/*.csv, which `vedette reproduce pack` reads. Each
comes from one commit; its licence is written beside it, and whoever passes the files on passes it on as well. Nothing of it is part of this repository.

- The steps are converted from the artifact of G10 (MICRO'23), platformxlab/G10, Apache License 2.0. Its own program is built (git, g++, make, flex, bison:
  scripts/setup.sh --tests installs them) and made to analyse each network: network file -> layers -> kernels -> tensors. Its text files are read, and the program is ended before
  it simulates.
- The lifetimes are copied: A to F from google/minimalloc, Apache License 2.0; resnet50 and pangu_2.6B, MindSpore's, from cappadokes/idealloc, MIT License.
- The logs of DTR's prototype (uwsampl/dtr-prototype) have no licence and are not fetched.

--from takes a checkout of G10's artifact instead of cloning one; --github a mirror with the same paths, such as file:///srv/git.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

GITHUB = "https://github.com"
REPOSITORY = "https://github.com/platformxlab/G10"
COMMIT = "de2c8c6f67a865858445e80b48c697a203ed20b5"

# repository, commit, its licence, and its files as they are called in pack/
LIFETIMES = [
    ("google/minimalloc", "9f5cf810fec4494df473c23cffd0567989e81b69", "LICENSE", {f"{name}.1048576.csv": f"benchmarks/challenging/{name}.1048576.csv" for name in "ABCDEF"}),
    ("cappadokes/idealloc", "a21f84d5f2556046c198ac80c4af325b3be72e52", "LICENSE", {f"{name}.csv": f"benchmarks/somas_tensors/{name}.csv" for name in ("resnet50", "pangu_2.6B")}),
]

# name: the artifact's folder and network, settings of its own configuration, batch sizes
NETWORKS = {
    "bert_base": ("BERT_Base", {"is_transformer": 1, "trans_borden": 210, "is_senet": 1, "input_H": 224, "input_W": 224}, [128, 256, 384, 512, 640, 768, 1024, 1280, 1536]),
    "vit": ("VIT", {"is_transformer": 1, "trans_borden": 184, "is_senet": 1, "input_H": 224, "input_W": 224}, [256, 512, 768, 1024, 1280, 1536, 1792, 2048]),
    "inceptionv3": ("Inceptionv3", {"is_inception": 1, "input_H": 299, "input_W": 299}, [512, 768, 1024, 1152, 1280, 1408, 1536, 1664, 1792]),
}
# fields of a layer in layers.config: the name of its tensor, and its kind
FIELDS = {
    "Input Tensor": ("input", "input"), "Output Tensor": ("output", "activation"), "d_Input Tensor": ("d_input", "gradient"), "d_Output Tensor": ("d_output", "gradient"),
    "Weight Tensor": ("weight", "weight"), "d_Weight Tensor": ("d_weight", "gradient"), "Bias Tensor": ("bias", "weight"), "d_Bias Tensor": ("d_bias", "gradient"),
    "Alpha_and_Beta Tensor": ("alpha_beta", "weight"), "d_Alpha_and_beta Tensor": ("d_alpha_beta", "gradient"), "Mu Tensor": ("mu", "activation"), "d_mu Tensor": ("d_mu", "gradient"),
    "Var Tensor": ("var", "activation"), "d_var Tensor": ("d_var", "gradient"), "V1 Tensor": ("v1", "activation"), "d_v1": ("d_v1", "gradient"), "V2 Tensor": ("v2", "activation"),
    "d_v2": ("d_v2", "gradient"), "Running_m Tensor": ("running_mean", "weight"), "Running_v Tensor": ("running_var", "weight"), "Musk_array Tensor": ("dropout_mask", "activation"),
}
TENSOR = re.compile(r"tensor(\d+) Is weight \(global\)\?: ([01]), Size in byte: (\d+)")
SYSTEMS = {"lru": "Base UVM", "FlashNeuron": "FlashNeuron", "deepUM": "DeepUM+", "prefetch_lru": "G10"}


def build(source):
    """The artifact's program; built once."""
    program = source / "src" / "gpg"
    if not program.exists():
        for tool in ("g++", "make", "flex", "bison"):
            if shutil.which(tool) is None:
                sys.exit(f"fetch_traces.py: {tool} is missing, which the artifact of G10 is built with; scripts/setup.sh --tests installs it (or apt-get install {tool})")
        subprocess.run(["make", "-C", str(program.parent), "CFLAGS=-O1 -w", "LIBS=-lm"], check=True, stdout=subprocess.DEVNULL)
    return program


def analyse(source, program, name, batch, folder):
    """The artifact's text files of one network; its program is ended as soon as they are whole."""
    net, settings, _ = NETWORKS[name]
    results = source / "results" / net / f"cudnn{batch}"
    entries = dict(settings, output_folder=folder, is_simulation=1, batch_size=batch, num_iteration=2, num_threads=128,
                   nn_model_input_file=source / "frontend" / "Nets" / f"{net}.txt", orig_kernel_time_file=f"{results}.txt", pf_kernel_time_file=f"{results}PF.txt",
                   input_pf_kernel_time_file=f"{results}InputPF.txt", workspace_size_file=f"{results}Workspace.txt", stat_output_file="sim_result", is_UVM=1, use_prefetch=1,
                   eviction_policy="LRU", system_latency_us=45, CPU_PCIe_bandwidth_GBps=15.754, CPU_memory_line_GB=128, GPU_memory_size_GB=40, GPU_frequency_GHz=1.2,
                   GPU_PCIe_bandwidth_GBps=15.754, GPU_malloc_uspB=0.000000814, GPU_free_uspB=0, SSD_PCIe_bandwidth_GBps=3.2, SSD_read_latency_us=12, SSD_write_latency_us=16,
                   SSD_latency_us=20, PCIe_latency_us=5, PCIe_batch_size_page=50, delta_parameter=0.5)
    config = folder.parent / "run.config"
    config.write_text("".join(f"{key} {value}\n" for key, value in entries.items()))
    network = None if settings.get("is_transformer") else open(source / "frontend" / "Nets" / f"{net}.txt")
    # a network that is no transformer is read from standard input
    running = subprocess.Popen([str(program), str(config)], cwd=program.parent, stdin=network or subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    statistics = folder / "statistics"
    deadline = time.monotonic() + 300
    while not (statistics / "interval.config").exists() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    running.kill()
    _, errors = running.communicate()
    if not (statistics / "interval.config").exists():
        sys.exit(f"fetch_traces.py: the artifact's program did not analyse {name}-{batch}: {errors.strip()[-300:]}")
    return {kind: (statistics / f"{kind}.config").read_text() for kind in ("layers", "kernels", "tensors")}


def blocks(text):
    return [block for block in re.split(r"^_{20,}$", text, flags=re.M) if block.strip()]


def name_layers(text):
    """Of a network of layers: name and kind by tensor; and of each layer, in their order, its number and its tensors. Numbers repeat."""
    names, later, layers = {}, {}, []
    for place, block in enumerate(blocks(text)):
        layers.append((re.search(r"Layer ID:(\d+);", block).group(1), {int(found.group(1)) for found in TENSOR.finditer(block)}))
        for line in block.splitlines():
            found = re.match(r"(.*?): tensor(\d+) ", line)
            if not found:
                continue
            field, tensor = found.group(1), int(found.group(2))
            more = re.match(r"Other (\w+) Tensor (\d+)", field)
            if more and more.group(1) != "D_Inputs":
                continue
            what, kind = (f"d_input{int(more.group(2)) + 1}", "gradient") if more else FIELDS[field]
            # one layer's d_output is the next one's d_input, and has that name
            (later if what == "d_output" else names).setdefault(tensor, (f"layer{place}.{what}", kind))
    return {**later, **names}, layers


def layer_of(number, tensors, layers):
    """The place of a kernel's layer: of those with its number the one that shares most tensors with it."""
    return max((place for place, (own, _) in enumerate(layers) if own == number), key=lambda place: len(layers[place][1] & tensors))


def name_ops(text, network, borden):
    """Of a transformer: tensors by the op that has them, leaves by their own number in the network file."""
    names, later = {}, {}
    ops = {op for op, _, _ in network}
    for block, (op, kind, inputs) in zip(blocks(text), network):
        part = {"Input Tensor(s): ": [], "Output Tensor: ": [], "d_Input Tensor(s): ": [], "d_Output Tensor: ": []}
        for line in block.splitlines():
            if line in part:
                into = part[line]
            elif TENSOR.match(line):
                into.append(int(TENSOR.match(line).group(1)))
        for tensor in part["Output Tensor: "]:
            names.setdefault(tensor, (f"op{op}.output", "activation"))
        for number, tensor in zip(inputs, part["Input Tensor(s): "]):
            if number < borden:
                # the exponent of a power is no parameter: it is never written
                names.setdefault(tensor, (f"param{number}", "constant" if kind == "Power" else "weight"))
            elif number not in ops:
                names.setdefault(tensor, (f"input{number}", "input") if number < min(ops) else (f"const{number}", "constant"))
        # inputs that are constants have no gradient
        places = [place for place, number in enumerate(inputs) if number in ops or (number < borden and kind != "Power")]
        for place, tensor in zip(places, part["d_Input Tensor(s): "]):
            names.setdefault(tensor, (f"op{op}.d_input{place}", "gradient"))
        for tensor in part["d_Output Tensor: "]:
            later.setdefault(tensor, (f"op{op}.d_output", "gradient"))
    return {**later, **names}


def network_ops(path):
    """The ops of a transformer's file as the artifact takes them: of a softmax and the three ops after it one remains, with the number of the last."""
    found = []
    for block in path.read_text().split("-------------------"):
        words = block.split()
        if words:
            found.append((int(words[0]), words[1], [int(word) for word in words[3:3 + int(words[2])]]))
    kept, at = [], 0
    while at < len(found):
        op, kind, inputs = found[at]
        at += 4 if kind == "SoftmaxBasic" else 1
        kept.append((found[at - 1][0], kind, inputs))
    return kept


def times_of(path):
    return [round(float(line.split()[1]) * 1e6) for line in path.read_text().splitlines() if line.strip()]


def phase_of(kernel):
    return "optimizer" if "Apply_Grad" in kernel else "backward" if "_Backward" in kernel or kernel == "Add_MultiGredient" else "forward"


def convert(source, name, batch, texts):
    net, settings, _ = NETWORKS[name]
    transformer = bool(settings.get("is_transformer"))
    if transformer:
        names, layers = name_ops(texts["layers"], network_ops(source / "frontend" / "Nets" / f"{net}.txt"), settings["trans_borden"]), []
    else:
        names, layers = name_layers(texts["layers"])
    sizes = {int(found.group(1)): (int(found.group(3)), found.group(2) == "1") for found in TENSOR.finditer(texts["tensors"])}
    times = times_of(source / "results" / net / f"cudnn{batch}.txt")
    own = [tensor for tensor in sorted(sizes) if tensor in names]  # the others are workspaces
    index = {tensor: place for place, tensor in enumerate(own)}
    ops, written = [], set()
    for number, block in enumerate(blocks(texts["kernels"])):
        kernel = re.search(r"Name: (\S+)", block).group(1)
        head, _, outputs = block.partition("Output Tensors:")
        reads = {int(found.group(1)) for found in TENSOR.finditer(head)}
        writes = {int(found.group(1)) for found in TENSOR.finditer(outputs)}
        parent = re.search(r"Parent (?:OP|Layer) ID:(\d+)", block).group(1)
        layer = f"op{parent}" if transformer else f"layer{layer_of(parent, reads | writes, layers)}"
        workspace = sum(sizes[tensor][0] for tensor in reads | writes if tensor not in index)
        reads, writes = {index[tensor] for tensor in reads if tensor in index}, {index[tensor] for tensor in writes if tensor in index}
        if kernel == "Dropout_Forward":  # the mask is listed as its input, and nothing writes it
            masks = {place for place in reads if names[own[place]][0].endswith(".dropout_mask")}
            reads, writes = reads - masks, writes | masks
        ops.append({"id": number, "name": kernel, "layer": layer, "phase": phase_of(kernel), "ns": times[number],
                    "reads": sorted(reads), "writes": sorted(writes), "workspace_bytes": workspace})
        written |= writes
    tensors = []
    for place, tensor in enumerate(own):
        kind = names[tensor][1]
        tensors.append({"id": place, "name": names[tensor][0], "bytes": sizes[tensor][0], "kind": kind, "persistent": sizes[tensor][1] or place not in written})
    notes = [f"From {REPOSITORY} at {COMMIT[:12]} by scripts/fetch_traces.py; Apache License 2.0.",
             "Workspaces are fields of ops. What is read and never written is persistent; the artifact lets it be born at its first use.",
             "Dropout masks are written by Dropout_Forward here; the artifact lists them as its inputs." if any("dropout_mask" in t["name"] for t in tensors) else
             "Plain gradient descent: no optimizer state; each update runs right after its gradient."]
    return {"format": "vedette-trace-1", "name": f"{name}-{batch}", "source": "G10 artifact (MICRO'23)", "device": "A100 40GB", "notes": notes, "tensors": tensors, "ops": ops}


def write_trace(trace, path):
    def rows(entries):
        return ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    head = ",".join(f"{json.dumps(key)}:{json.dumps(trace[key])}" for key in ("format", "name", "source", "device"))
    path.write_text("{" + head + ',\n"notes":[\n' + rows(trace["notes"]) + '],\n"tensors":[\n' + rows(trace["tensors"]) + '],\n"ops":[\n' + rows(trace["ops"]) + "]}\n")


def write_published(source, path):
    """Percent of ideal as the artifact ships it, from cycles."""
    lines = ["model,batch,system,percent_of_ideal,time_cycles_1.2GHz,ideal_cycles_1.2GHz,system_in_paper,source_file"]
    for model, file in (("bert_base", "bert"), ("vit", "vit"), ("inceptionv3", "inception")):
        name = f"example_results/overall_batchsize/{file}.txt"
        words = [line.strip() for line in (source / name).read_text().splitlines() if line.strip()]
        systems = [system.strip() for system in words[0].split("|")]
        for batch, row in zip(words[1::2], words[2::2]):
            cycles = dict(zip(systems, row.split()))
            for system, paper in SYSTEMS.items():
                fails = cycles[system] == "inf"
                percent = "" if fails else f"{100 * int(cycles['ideal']) / int(cycles[system]):.4f}"
                lines.append(f"{model},{batch},{system},{percent},{'unsupported' if fails else cycles[system]},{cycles['ideal']},{paper},{name}")
    path.write_text("\n".join(lines) + "\n")


def clone(github, repository, commit, folder):
    """A checkout of one commit."""
    for command in (["git", "clone", "--quiet", "--no-checkout", f"{github}/{repository}", str(folder)], ["git", "-C", str(folder), "checkout", "--quiet", commit]):
        ran = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            sys.exit(f"fetch_traces.py: {repository} at {commit[:12]} cannot be had from {github}: {ran.stderr.strip()[-300:]}; --github names another place")


def fetch_lifetimes(github, target, work):
    target.mkdir(parents=True, exist_ok=True)
    for repository, commit, licence, files in LIFETIMES:
        source = work / repository.replace("/", "+")
        clone(github, repository, commit, source)
        for name, path in files.items():
            shutil.copyfile(source / path, target / name)
            print(target / name, flush=True)
        shutil.copyfile(source / licence, target / f"LICENSE.{repository.partition('/')[2]}")


def fetch_g10(args, target, wanted, work):
    target.mkdir(parents=True, exist_ok=True)
    source = args.source.resolve() if args.source else work / "G10"
    if not args.source:
        clone(args.github, "platformxlab/G10", COMMIT, source)
    program = build(source)
    write_published(source, target.parent / "g10_published.csv")
    for trace in wanted:
        name, batch = trace.rsplit("-", 1)
        folder = work / "run" / trace
        folder.parent.mkdir(exist_ok=True)
        write_trace(convert(source, name, int(batch), analyse(source, program, name, int(batch), folder)), target / f"{trace}.json")
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{target / trace}.json", flush=True)
    if (source / "LICENCE").exists():
        shutil.copy(source / "LICENCE", target / "LICENCE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("data"))
    parser.add_argument("--from", dest="source", type=pathlib.Path, help="a checkout of G10's artifact")
    parser.add_argument("--github", default=GITHUB, help="what repositories are cloned from")
    parser.add_argument("--only", default="", help="traces by their names, or pack, with commas")
    args = parser.parse_args()
    all_traces = [f"{name}-{batch}" for name, (_, _, batches) in NETWORKS.items() for batch in batches]
    only = list(filter(None, args.only.split(","))) or all_traces + ["pack"]
    for name in only:
        if name not in all_traces + ["pack"]:
            sys.exit(f"fetch_traces.py: there is no trace {name}; there are pack {' '.join(all_traces)}")
    wanted = [trace for trace in all_traces if trace in only]
    with tempfile.TemporaryDirectory() as work:
        if "pack" in only:
            fetch_lifetimes(args.github, args.output / "pack", pathlib.Path(work))
        if wanted:
            fetch_g10(args, args.output / "traces" / "g10", wanted, pathlib.Path(work))


if __name__ == "__main__":
    main()
