"""Compare FOLDER/diffusion.npy with NumPy in double precision: sixteen rows, and every row's sum."""

import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
X = np.load(folder / "digits.npy").astype(np.float64)
D = np.load(folder / "diffusion.npy", mmap_mode="r")
n = len(X)
squares = (X**2).sum(axis=1)


def steps(rows: np.ndarray | slice) -> np.ndarray:
    """These rows of the one-step matrix P."""
    K = np.exp(-0.05 * (squares[rows, None] + squares - 2 * X[rows] @ X.T))
    return K / K.sum(axis=1, keepdims=True)


chosen = np.sort(np.random.default_rng(1).choice(n, size=min(16, n), replace=False))
first, expected, sums = steps(chosen), np.zeros((len(chosen), n)), np.zeros(n)
for start in range(0, n, 1000):
    block = slice(start, min(start + 1000, n))
    expected += first[:, block] @ steps(block)
    sums[block] = D[block].sum(axis=1, dtype=np.float64)

error = np.abs(D[chosen] - expected).max() / expected.max()
drift = np.abs(sums - 1).max()
print(f"{len(chosen)} rows against NumPy in double precision: largest error {error:.1e} of the largest entry")
print(f"all {n:,} rows sum to 1 within {drift:.1e}")
sys.exit(0 if error < 1e-5 and drift < 1e-4 else "the answer is wrong")
