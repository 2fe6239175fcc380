"""C++ ranks (examples/train) under torchrun: twenty that are killed at any moment, and two machines with a slow network. The end is
that of a job which lost no rank, bit by bit, and no file and no process is left.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import vedette

train = pathlib.Path(vedette.__file__).parents[2] / "examples/train"
torchrun = pathlib.Path(__file__).resolve().parents[2] / "scripts/torchrun"
# Forty steps and a checkpoint take about a second, and a start two.
job = ["--model", "mlp", "--small", "--fast-memory", "1400KiB", "--chunk", "32KiB", "--threads", "1", "--shard-optimizer"]


def children_of(process):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


def processes_that_name(text):
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


class Job:
    """A place with a folder for the slow tier and one for checkpoints."""

    def __init__(self, test):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="vedette_torchrun_"))
        test.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.slow, self.checkpoints = self.place / "slow", self.place / "checkpoints"
        self.slow.mkdir()
        self.checkpoints.mkdir()

    def words(self, steps, *more):
        told = 'exec "$0" "$@" --state --json result-$RANK.json'
        return ["/bin/sh", "-c", told, train, *job, "--steps", steps, "--slow", f"nvme:{self.slow}", "--checkpoint", self.checkpoints, *more]

    def start(self, *agent, prefix=(), words, **environment):
        command = [str(word) for word in (*prefix, torchrun, *agent, "--no-python", *words)]
        self.log = open(self.place / f"log{len(list(self.place.iterdir()))}", "w+")
        own = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "VEDETTE_STAND_INS")}
        environment = {**own, "OMP_NUM_THREADS": "1", **environment}
        return subprocess.Popen(command, env=environment, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.place)

    def said(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def end(self):
        """Digests of parameters, buffers and optimizer state, by rank and name."""
        return {path.name: json.loads(path.read_text())["state"] for path in self.place.glob("result-*.json")}


@unittest.skipUnless(train.exists(), f"{train} is not built")
class Torchrun(unittest.TestCase):
    def nothing_is_left(self, job, steps, ranks):
        self.assertEqual(list(job.slow.iterdir()), [])
        self.assertEqual(sorted(file.name for file in job.checkpoints.iterdir()),
                         [f"step-{steps}.rank-{rank}-of-{ranks}" for rank in range(ranks)])
        self.assertEqual(len(job.end()), ranks)
        self.assertEqual(processes_that_name(str(job.place)), [])

    def finish(self, agent, job, patience=300):
        try:
            self.assertEqual(agent.wait(patience), 0, job.said())
        finally:
            agent.kill()

    def ranks_of(self, agent):
        """Two processes, or none where the job has ended."""
        while agent.poll() is None:
            ranks = [child for child in children_of(agent.pid) if child in processes_that_name("--shard-optimizer")]
            if len(ranks) == 2:
                return ranks
            time.sleep(0.02)
        return []

    def lose_ranks(self, agent, chance, within, most):
        """Kills one rank after another until the job ends by itself, or `most` were killed. Returns how many were."""
        kills = 0
        while kills < most:
            ranks, moment = self.ranks_of(agent), time.monotonic() + chance.uniform(0, within)
            while agent.poll() is None and time.monotonic() < moment:
                time.sleep(0.02)
            if agent.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(chance.choice(ranks), signal.SIGKILL)
                kills += 1
            while agent.poll() is None and any(os.path.exists(f"/proc/{rank}") for rank in ranks):
                time.sleep(0.02)
        return kills

    def test_loses_twenty_ranks_at_any_moment(self):
        steps, kills, seed = 100, 20, random.SystemRandom().randrange(1 << 30)
        chance, lost, jobs = random.Random(seed), 0, 0
        began = time.monotonic()
        whole = Job(self)
        agent_words = ["--standalone", "--nproc-per-node=2", "--monitor-interval=0.1", f"--max-restarts={kills}"]
        self.finish(whole.start(*agent_words, words=whole.words(steps, "--every", 5), GLOO_SOCKET_IFNAME="lo"), whole)
        self.nothing_is_left(whole, steps, 2)
        took = time.monotonic() - began
        while lost < kills:  # a job that ends before the twentieth is followed by another one
            broken = Job(self)
            agent = broken.start(*agent_words, words=broken.words(steps, "--every", 5), GLOO_SOCKET_IFNAME="lo")
            try:
                lost += self.lose_ranks(agent, chance, 0.7 * took, kills - lost)
                self.finish(agent, broken)
            except BaseException:
                agent.terminate()
                raise
            self.assertEqual(broken.end(), whole.end(), f"seed {seed}")
            self.nothing_is_left(broken, steps, 2)
            jobs += 1
        print(f"seed {seed}: {lost} ranks were killed in {jobs} jobs, of {took:.1f} s where none is", flush=True)

    def test_on_two_machines_with_a_slow_network(self):
        steps, rate = 12, 100e6 / 8  # bytes a second
        alone = Job(self)
        self.finish(alone.start("--standalone", "--nproc-per-node=2", words=alone.words(steps, "--every", 4), GLOO_SOCKET_IFNAME="lo"), alone)
        two = Job(self)
        self.two_namespaces("100mbit")
        began = time.monotonic()
        agents = [two.start("--nnodes=2", "--nproc-per-node=1", f"--node-rank={i}", "--rdzv-backend=c10d", "--rdzv-id=v",
                            "--rdzv-endpoint=10.77.0.1:29400", f"--rdzv-conf=is_host={i == 0},join_timeout=60",
                            f"--local-addr=10.77.0.{i + 1}", prefix=["ip", "netns", "exec", f"vedette{i}"],
                            words=two.words(steps, "--every", 4), GLOO_SOCKET_IFNAME=f"vedette{i}") for i in range(2)]
        for agent in agents:
            self.finish(agent, two, 120)
        sent = self.bytes_sent()
        took = time.monotonic() - began
        print(f"two machines: {sent / 2**20:.1f} MiB over the network in {took:.1f} s", flush=True)
        self.assertEqual(two.end(), alone.end())
        self.nothing_is_left(two, steps, 2)
        self.assertGreater(took, sent / 2 / rate, "the network has its rate")

    def two_namespaces(self, rate):
        def run(*words):
            return subprocess.run(words, capture_output=True, text=True)

        if shutil.which("ip") is None or shutil.which("tc") is None:
            self.skipTest("ip and tc are missing (Debian: iproute2)")
        if run("ip", "netns", "add", "vedette0").returncode != 0:
            self.skipTest("network namespaces need root and CAP_NET_ADMIN")
        self.addCleanup(lambda: [run("ip", "netns", "del", f"vedette{i}") for i in range(2)])
        run("ip", "netns", "add", "vedette1")
        for words in (["link", "add", "vedette0", "netns", "vedette0", "type", "veth", "peer", "name", "vedette1", "netns", "vedette1"],
                      *(["-n", f"vedette{i}", *rest.format(i=i, n=i + 1).split()] for i in range(2) for rest in (
                          "link set lo up", "addr add 10.77.0.{n}/24 dev vedette{i}", "link set vedette{i} up"))):
            if (done := run("ip", *words)).returncode != 0:
                self.skipTest(f"ip {' '.join(words)}: {done.stderr.strip()}")
        for i in range(2):
            done = run("ip", "netns", "exec", f"vedette{i}", "tc", "qdisc", "add", "dev", f"vedette{i}", "root", "tbf", "rate", rate,
                       "burst", "256kb", "latency", "50ms")
            if done.returncode != 0:
                self.skipTest(f"tc makes no slow link here: {done.stderr.strip()}")

    def bytes_sent(self):
        return sum(int(subprocess.run(["ip", "netns", "exec", f"vedette{i}", "cat", f"/sys/class/net/vedette{i}/statistics/tx_bytes"],
                                      capture_output=True, text=True).stdout) for i in range(2))


if __name__ == "__main__":
    unittest.main()
