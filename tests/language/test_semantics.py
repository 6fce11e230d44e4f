"""The language page, sentence by sentence, through the product."""

import numpy as np
import pytest

from einturnip.testing import assert_agrees
from tests.language import sentences_core as core
from tests.language import sentences_functions as functions
from tests.language import sentences_indices as indices
from tests.language import sentences_numbers as numbers
from tests.language import sentences_pieces as pieces
from tests.language.harness import Sentence, run_program

SENTENCES = [
    *core.DECLARATIONS,
    *core.LABELS,
    *core.EINSTEIN,
    *core.PRECEDENCE,
    *numbers.DTYPES,
    *numbers.FUNCTIONS,
    *numbers.AGGREGATIONS,
    *indices.INDICES,
    *indices.GATHERS,
    *indices.SCATTERS,
    *pieces.SLICES,
    *pieces.REPLACED,
    *pieces.JOINED,
    *pieces.RESHAPED,
    *functions.FUNCTIONS,
    *functions.STANDARD,
    *functions.LOOPS,
    *functions.HINTS,
]


@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
def test_sentence(sentence: Sentence) -> None:
    result = run_program(sentence.text, sentence.inputs, sentence.dims)
    assert list(result) == list(sentence.expected)
    for name, expected in sentence.expected.items():
        assert_agrees(result[name], np.asarray(expected), sentence.exact)


def test_attention_as_on_the_front_of_the_page() -> None:
    text = """
    # attention.ein: one head group, causal
    dim d = 64                                   # a size; 'dim n' alone is bound by the inputs or by --dim n=...
    input Q : f32[b, h, s, d]                    # sizes b, h, s come from the file
    input K : f32[b, h, t, d]
    input V : f32[b, h, t, d]

    scale = 1 / sqrt(d)                          # a scalar: sizes are usable as numbers
    S[b,h,s,t] = sum[d] Q[b,h,s,d] * K[b,h,t,d] * scale
    A[b,h,s,t] = where(t <= s, S[b,h,s,t], -inf) # a label used as a number is its index, from 0
    P[b,h,s,t] = exp(A[b,h,s,t] - max[t] A[b,h,s,t])
    O[b,h,s,d] = sum[t] P[b,h,s,t] * V[b,h,t,d] / sum[t] P[b,h,s,t]
    output O
    """
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, 3, 5, 64)).astype(np.float32) for _ in range(3))
    scores = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(-1, -2) / np.float32(8), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (weights @ v / weights.sum(-1, keepdims=True)).astype(np.float32)
    lines = "\n".join(line[4:] for line in text.splitlines())
    assert_agrees(run_program(lines, {"Q": q, "K": k, "V": v})["O"], expected, exact=False)


def test_only_what_an_output_needs_is_computed() -> None:
    text = "input X : f32[n, m]\ninput Y : f32[k]\nT[i] = sum[j] X[i,j]\nU[k] = Y[k] * 2\noutput T\n"
    result = run_program(text, {"X": np.ones((2, 3), np.float32), "Y": np.ones(4, np.float32)})
    assert list(result) == ["T"]
