"""Whole tasks of compiled games on a GPU, with the bits of the CPU's kernel."""

import numpy as np

vars(np).setdefault("row_stack", np.vstack)  # numba-cuda calls it when it is imported; NumPy 2.5 has it no longer
