"""data_parallel_test.py on four ranks."""

import unittest

import data_parallel_test


class FourRanks(data_parallel_test.DataParallel):
    ranks = 4


if __name__ == "__main__":
    unittest.main()
