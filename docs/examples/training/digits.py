"""Trains digits.ein on scikit-learn's digits (pip install scikit-learn); prints the test accuracy."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import einturnip as et

STEPS, TRAINED, BATCH = 600, 1400, 128
rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
order = rng.permutation(len(images))
images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
W1 = (rng.standard_normal((64, 96)) * np.sqrt(2 / 64)).astype(np.float32)
W2 = (rng.standard_normal((96, 10)) * np.sqrt(1 / 96)).astype(np.float32)

program = et.compile(Path(__file__).with_name("digits.ein"))
with program.session(W1=W1, W2=W2, total=STEPS, memory="256MiB") as session:
    for step in range(STEPS):
        batch = rng.integers(0, TRAINED, BATCH)
        loss = session.step(X=images[batch], y=labels[batch])["loss"]
        if step % 100 == 99:
            print(f"step {step + 1}: loss {float(loss):.4f}")
    W1, b1, W2, b2 = (session.state(name) for name in ("W1", "b1", "W2", "b2"))
scores = np.maximum(images[TRAINED:] @ W1 + b1, 0) @ W2 + b2
print(f"accuracy {np.mean(scores.argmax(1) == labels[TRAINED:]):.1%}")
