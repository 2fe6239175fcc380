"""Trainings by examples/train, as programs of their own: what scripts that compare them have in common."""
import json
import os
import subprocess
import sys
import tempfile
import time


def add_arguments(parser, threads=2):
    parser.add_argument("--train", default="build/release/examples/train")
    parser.add_argument("--slow", default="nvme:.")
    parser.add_argument("--chunk", default="2MiB")
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--made-up-data", action="store_true")


class Training:
    """One that runs. `in_child` is called in the new process before it is a program."""

    def __init__(self, args, folder, model, steps, *more, in_child=None):
        self.model = model
        self.result = os.path.join(folder, f"{time.monotonic_ns()}.json")
        words = [args.train, "--model", model, "--steps", str(steps), "--threads", str(args.threads), "--json", self.result, "--chunk", args.chunk, *more]
        words += ["--small"] * args.small + ["--made-up-data"] * args.made_up_data
        self.began = time.monotonic()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.log, preexec_fn=in_child)

    def end(self, may_fail=False):
        """What it found; None where it failed and may."""
        status = self.process.wait()
        self.seconds = time.monotonic() - self.began
        if status != 0:
            if may_fail:
                return None
            self.log.seek(0)
            sys.exit(f"{' '.join(self.process.args)}: status {status}\n{self.log.read().decode()[-800:]}")
        with open(self.result, encoding="utf-8") as file:
            self.found = json.load(file)
        return self.found


def train(*what):
    return Training(*what).end()
