"""Functions of NumPy, PyTorch, JAX and Julia that the language lacks, with their exact equivalents.

A name in this table is not treated as a misspelling: for log10 no correction to log1p is suggested.
"""

from __future__ import annotations

# fmt: off
REWRITES: dict[str, tuple[str, str]] = {
    "ln": ("x", "log(x)"), "log10": ("x", "log(x) / log(10)"), "log2": ("x", "log(x) / log(2)"),
    "exp2": ("x", "exp(x * log(2))"), "exp10": ("x", "exp(x * log(10))"),
    "power": ("x y", "x ^ y"), "pow": ("x y", "x ^ y"), "square": ("x", "x ^ 2"), "reciprocal": ("x", "1 / x"),
    "maximum": ("a b", "max(a, b)"), "minimum": ("a b", "min(a, b)"), "clip": ("x a b", "min(max(x, a), b)"),
    "clamp": ("x a b", "min(max(x, a), b)"), "relu6": ("x", "min(relu(x), 6)"),
    "absolute": ("x", "abs(x)"), "fabs": ("x", "abs(x)"), "negative": ("x", "-x"), "rint": ("x", "round(x)"),
    "trunc": ("x", "sign(x) * floor(abs(x))"), "fix": ("x", "sign(x) * floor(abs(x))"),
    "arcsinh": ("x", "asinh(x)"), "arccosh": ("x", "acosh(x)"), "arctanh": ("x", "atanh(x)"),
    "cbrt": ("x", "sign(x) * abs(x) ^ (1 / 3)"), "hypot": ("x y", "sqrt(x ^ 2 + y ^ 2)"),
    "expit": ("x", "sigmoid(x)"), "logistic": ("x", "sigmoid(x)"), "swish": ("x", "silu(x)"),
    "conjugate": ("x", "conj(x)"), "erfc": ("x", "1 - erf(x)"), "deg2rad": ("x", "x * pi / 180"),
    "radians": ("x", "x * pi / 180"), "rad2deg": ("x", "x * 180 / pi"), "degrees": ("x", "x * 180 / pi"),
    "isnan": ("x", "x != x"), "isinf": ("x", "abs(x) == inf"), "if": ("c a b", "where(c, a, b)"),
    "ifelse": ("c a b", "where(c, a, b)"), "select": ("c a b", "where(c, a, b)"),
    "add": ("a b", "a + b"), "subtract": ("a b", "a - b"), "multiply": ("a b", "a * b"), "divide": ("a b", "a / b"),
    "floor_divide": ("a b", "a // b"), "remainder": ("a b", "a % b"),
}
"""Argument names and the exactly equivalent expression."""

EXAMPLES = {
    "einsum": "C[i,k] = A[i,j] * B[j,k]", "range": "a label, as in [i: n]", "arange": "a label, as in Y[i: n] = i",
    "dot": "sum[i] x[i] * y[i]", "matmul": "C[i,k] = A[i,j] * B[j,k]", "transpose": "B[j,i] = A[i,j]",
    "norm": "sqrt(sum[i] x[i]^2)", "var": "mean[i] (x[i] - mean[i] x[i])^2", "count": "sum[i] i64(m[i])",
    "zeros": "Y[i: n] = 0", "ones": "Y[i: n] = 1", "eye": "I[i: n, j: n] = where(i == j, 1, 0)",
    "trace": "sum[i] A[i,i]", "outer": "C[i,j] = x[i] * y[j]", "diag": "d[i] = A[i,i]",
}
"""Equations that replace a function."""

_OTHERS = """
    acos allclose amax amin arccos arcsin arctan arctan2 argpartition argsort asin
    atan atan2 average bernoulli bessel beta bincount bitwise_and bitwise_or bitwise_xor cat ceiling
    celu cholesky chunk concat concatenate conv conv1d conv2d conv3d convolve copysign corrcoef cos_sim cosine cot
    cov cross csc cummax cummin cumprod cumsum dense det diff digamma dropout eig eigh elu embedding erfinv expand
    fft fftn fill flip floormod fmax fmin fmod frexp full gamma gammaln gather gcd glu group_norm hardsigmoid
    hardswish hardtanh heaviside histogram ifft inner interp inv irfft isclose isfinite kron lcm ldexp leaky_relu
    lgamma linear linspace log_sigmoid logaddexp logdet logit logsigmoid logspace logsumexp lstsq lu max_pool median
    meshgrid mish mod modf nanmax nanmean nanmin nansum nextafter nonzero normal pad percentile pinv polygamma
    polyval prelu ptp qr quantile rand randint randn random randperm ravel repeat reshape rfft roll rotl rotr scan
    scatter searchsorted sec seed selu sgn sinc slogdet softsign solve sort split squeeze stack std svd swapaxes
    take tanhshrink tensordot tile topk trapz tril triu unique unsqueeze vdot vecdot xlogy zeta
"""
KNOWN_ELSEWHERE = frozenset({*REWRITES, *EXAMPLES, *_OTHERS.split()})
