"""The contract of an algorithm, held by my_algorithm: run it with pytest."""

from evo.testing import algorithm_tests

TestMyAlgorithm = algorithm_tests("my_algorithm")
