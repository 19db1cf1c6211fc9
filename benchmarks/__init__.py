"""Comparisons with other software, measured in one run on one machine by `python -m benchmarks`."""

import os

# Everything here is a figure for one core, so no library may take more. Read when NumPy or TensorFlow loads.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
