"""Tests lie in folders named as those of `evo`; a folder of `evo` without one is tested through those that use it.

`evolution` is tested mostly in `algorithms`, `workers` in `evaluators` too, and `testing` in `games`. `run` tests whole
runs, `snake`, `benchmarks` and `docs` the folders beside `evo`, `published` those of experiments and champions,
`imports` the layers, and `helpers` is what tests of several folders share.
"""
