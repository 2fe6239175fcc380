#!/usr/bin/env python3
"""What scripts/fetch_traces.py reads from the artifact of G10 and copies from others, on folders that are made up here: no network, no artifact."""
import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import fetch_traces

LINE = "_" * 40


def tensor(number, size, weight=0):
    return f"tensor{number} Is weight (global)?: {weight}, Size in byte: {size}"


# two layers of a network of layers: 1 reads 0 and writes 2 through weight 1; the second drops some of 2 out into 4 by the mask 3; 9 is scratch
LAYERS = f"""{LINE}
Layer ID:1; a convolution
Input Tensor: {tensor(0, 64)}
Output Tensor: {tensor(2, 128)}
Weight Tensor: {tensor(1, 256, 1)}
d_Output Tensor: {tensor(5, 128)}
d_Weight Tensor: {tensor(6, 256)}
{LINE}
Layer ID:2; a dropout
Input Tensor: {tensor(2, 128)}
Output Tensor: {tensor(4, 128)}
Musk_array Tensor: {tensor(3, 32)}
d_Input Tensor: {tensor(5, 128)}
"""
KERNELS = f"""{LINE}
Kernel ID: 0, Name: Conv2d_Forward
Parent Layer ID:1
Input Tensors:
{tensor(0, 64)}
{tensor(1, 256, 1)}
{tensor(9, 1000)}
Output Tensors:
{tensor(2, 128)}
{LINE}
Kernel ID: 1, Name: Dropout_Forward
Parent Layer ID:2
Input Tensors:
{tensor(2, 128)}
{tensor(3, 32)}
Output Tensors:
{tensor(4, 128)}
{LINE}
Kernel ID: 2, Name: Conv2d_Backward_Weight
Parent Layer ID:1
Input Tensors:
{tensor(5, 128)}
Output Tensors:
{tensor(6, 256)}
{LINE}
Kernel ID: 3, Name: Conv2d_Apply_Grad
Parent Layer ID:1
Input Tensors:
{tensor(6, 256)}
Output Tensors:
{tensor(1, 256, 1)}
"""
TENSORS = "\n".join([tensor(0, 64), tensor(1, 256, 1), tensor(2, 128), tensor(3, 32), tensor(4, 128), tensor(5, 128), tensor(6, 256), tensor(9, 1000)]) + "\n"
TEXTS = {"layers": LAYERS, "kernels": KERNELS, "tensors": TENSORS}

# three ops of a transformer whose parameters end at 10: 20 = 12 * weight 3, 24 = softmax in four ops, of which the last has the name
NETWORK = "20 MatMul 2 12 3\n-------------------\n21 SoftmaxBasic 1 20\n-------------------\n22 Exp 1 21\n-------------------\n23 Sum 1 22\n-------------------\n24 Div 2 22 23\n"
BLOCKS = f"""{LINE}
Input Tensor(s): 
{tensor(0, 64)}
{tensor(1, 256, 1)}
Output Tensor: 
{tensor(2, 128)}
d_Input Tensor(s): 
{tensor(5, 256)}
{LINE}
Input Tensor(s): 
{tensor(2, 128)}
Output Tensor: 
{tensor(3, 128)}
d_Output Tensor: 
{tensor(6, 128)}
"""


class Artifact(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_network_of_layers_becomes_a_trace(self):
        times = self.folder / "results" / "Inceptionv3" / "cudnn512.txt"
        times.parent.mkdir(parents=True)
        times.write_text("0 1.5\n1 0.25\n2 2\n3 0.125\n")
        trace = fetch_traces.convert(self.folder, "inceptionv3", 512, TEXTS)
        names = [t["name"] for t in trace["tensors"]]
        self.assertEqual(names, ["layer0.input", "layer0.weight", "layer0.output", "layer1.dropout_mask", "layer1.output", "layer1.d_input", "layer0.d_weight"])
        self.assertEqual([t["kind"] for t in trace["tensors"]], ["input", "weight", "activation", "activation", "activation", "gradient", "gradient"])
        # what is read and never written is there from the begin
        self.assertEqual([t["persistent"] for t in trace["tensors"]], [True, True, False, False, False, True, False])
        ops = trace["ops"]
        self.assertEqual([op["ns"] for op in ops], [1500000, 250000, 2000000, 125000])
        self.assertEqual([op["phase"] for op in ops], ["forward", "forward", "backward", "optimizer"])
        self.assertEqual([op["layer"] for op in ops], ["layer0", "layer1", "layer0", "layer0"])
        self.assertEqual((ops[0]["reads"], ops[0]["writes"], ops[0]["workspace_bytes"]), ([0, 1], [2], 1000))
        self.assertEqual((ops[1]["reads"], ops[1]["writes"]), ([2], [3, 4]))  # the mask is written by the dropout
        self.assertIn("Dropout masks", trace["notes"][2])

    def test_a_trace_is_written_in_the_format_that_vedette_reads(self):
        import json
        trace = {"format": "vedette-trace-1", "name": "x", "source": "s", "device": "d", "notes": ["n"], "tensors": [{"id": 0}], "ops": [{"id": 0}, {"id": 1}]}
        fetch_traces.write_trace(trace, self.folder / "x.json")
        self.assertEqual(json.loads((self.folder / "x.json").read_text()), trace)

    def test_a_transformers_tensors_are_named_by_their_ops(self):
        path = self.folder / "net.txt"
        path.write_text(NETWORK)
        network = fetch_traces.network_ops(path)
        self.assertEqual(network, [(20, "MatMul", [12, 3]), (24, "SoftmaxBasic", [20])])
        names = fetch_traces.name_ops(BLOCKS, network, 10)
        self.assertEqual(names, {0: ("input12", "input"), 1: ("param3", "weight"), 2: ("op20.output", "activation"), 3: ("op24.output", "activation"),
                                 5: ("op20.d_input1", "gradient"), 6: ("op24.d_output", "gradient")})

    def test_published_percentages_come_from_cycles_and_failures_have_none(self):
        folder = self.folder / "example_results" / "overall_batchsize"
        folder.mkdir(parents=True)
        for name in ("bert", "vit", "inception"):
            (folder / f"{name}.txt").write_text("ideal|lru|FlashNeuron|deepUM|prefetch_lru\n\n128\n1000 4000 inf 2000 1250\n")
        fetch_traces.write_published(self.folder, self.folder / "published.csv")
        lines = (self.folder / "published.csv").read_text().splitlines()
        self.assertEqual(len(lines), 1 + 3 * 4)
        self.assertEqual(lines[1], "bert_base,128,lru,25.0000,4000,1000,Base UVM,example_results/overall_batchsize/bert.txt")
        self.assertEqual(lines[2], "bert_base,128,FlashNeuron,,unsupported,1000,FlashNeuron,example_results/overall_batchsize/bert.txt")

    def test_lifetimes_are_copied_with_their_licence_from_one_commit(self):
        source = self.folder / "git" / "somebody" / "lives"
        source.mkdir(parents=True)

        def git(*words):
            return subprocess.run(["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True, text=True).stdout.strip()
        git("init", "-q")
        (source / "LICENSE").write_text("as you like\n")
        (source / "few.csv").write_text("id,lower,upper,size\n0,0,2,8\n")
        git("add", "-A")
        git("commit", "-q", "-m", "one")
        commit = git("rev-parse", "HEAD")
        (source / "few.csv").write_text("later\n")
        git("commit", "-q", "-a", "-m", "two")
        kept = fetch_traces.LIFETIMES
        self.addCleanup(setattr, fetch_traces, "LIFETIMES", kept)
        fetch_traces.LIFETIMES = [("somebody/lives", commit, "LICENSE", {"few.10.csv": "few.csv"})]
        with contextlib.redirect_stdout(io.StringIO()):
            fetch_traces.fetch_lifetimes(f"file://{self.folder}/git", self.folder / "pack", self.folder / "work")
        self.assertEqual((self.folder / "pack" / "few.10.csv").read_text(), "id,lower,upper,size\n0,0,2,8\n")
        self.assertEqual((self.folder / "pack" / "LICENSE.lives").read_text(), "as you like\n")
        fetch_traces.LIFETIMES = [("somebody/else", commit, "LICENSE", {})]
        with self.assertRaisesRegex(SystemExit, "somebody/else at .* cannot be had from"):
            fetch_traces.fetch_lifetimes(f"file://{self.folder}/git", self.folder / "pack", self.folder / "work")


if __name__ == "__main__":
    unittest.main()
