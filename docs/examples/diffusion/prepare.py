"""Write FOLDER/digits.npy: scikit-learn's handwritten digits, each repeated with small shifts."""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

folder, samples = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 18_000
folder.mkdir(parents=True, exist_ok=True)

images = load_digits().images.astype(np.float32) / 16
rng = np.random.default_rng(0)
drawn = images[rng.integers(len(images), size=samples)]
for axis in (1, 2):
    # A shift by a fraction of a pixel blends an image with its neighbour one pixel on.
    part = rng.uniform(0, 1, (samples, 1, 1)).astype(np.float32)
    drawn = (1 - part) * drawn + part * np.roll(drawn, 1, axis)
np.save(folder / "digits.npy", drawn.reshape(samples, -1))
print(f"{samples:,} images of 64 pixels: {folder / 'digits.npy'}")
print(f"their diffusion matrix takes {samples * samples * 4 / 2**20:,.0f} MiB, and so does each step on the way")
