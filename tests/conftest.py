"""Before anything imports NumPy: one BLAS thread a process, as the suite runs on all cores."""

import os


os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
