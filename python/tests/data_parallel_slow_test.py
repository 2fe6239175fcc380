"""data_parallel_test.py on four ranks, of the CPU and of simulated GPUs, and where there is no userfaultfd."""

import unittest

import data_parallel_test
import unprivileged


class FourRanks(data_parallel_test.DataParallel):
    ranks = 4


class FourGpus(data_parallel_test.OnGpus):
    ranks = 4


class WithoutUserfaultfd(data_parallel_test.Unprivileged, data_parallel_test.DataParallel):
    enter = staticmethod(unprivileged.become_nobody_without_userfaultfd)
    mechanism = "PROT_NONE and SIGSEGV"


if __name__ == "__main__":
    unittest.main()
