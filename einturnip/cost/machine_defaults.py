"""Default rates for machines that were not measured: those of a small server (Zen 5, 2 cores).

Seconds per point of array operations, of Python overhead, and of products by one of two busy workers. Measured by
``doctor --calibrate``, 2026-11-21, NumPy 2.4 with OpenBLAS 0.3.31.
"""

from __future__ import annotations

# The sizes m, n and k of the products in ``_PRODUCT_MICROSECONDS``: the row of a dtype has the times of all triples, k
# last.
SIDES = (1, 4, 16, 64, 256, 1024)
# log2 of the bytes of the tables from which rows are gathered: one for each level of cache, and one larger than caches.
TABLE_BITS = (14, 19, 23, 26)

# fmt: off
_NANOSECONDS = {
    "exp.float32": 0.456, "log.float32": 0.39, "log1p.float32": 0.449, "expm1.float32": 0.358, "sqrt.float32": 0.35,
    "sin.float32": 0.535, "cos.float32": 0.548, "tan.float32": 0.415, "tanh.float32": 0.376,
    "reciprocal.float32": 0.211, "negative.float32": 0.0832, "absolute.float32": 0.0773, "sign.float32": 0.421,
    "floor.float32": 0.0786, "ceil.float32": 0.077, "rint.float32": 0.0773, "square.float32": 0.0809,
    "exp_quiet.float32": 0.451, "exp.float64": 0.799, "log.float64": 0.811, "log1p.float64": 1.07,
    "expm1.float64": 1.21, "sqrt.float64": 1.16, "sin.float64": 8.4, "cos.float64": 8.37, "tan.float64": 1.45,
    "tanh.float64": 1.75, "reciprocal.float64": 0.684, "negative.float64": 0.184, "absolute.float64": 0.187,
    "sign.float64": 0.587, "floor.float64": 0.188, "ceil.float64": 0.186, "rint.float64": 0.191,
    "square.float64": 0.189, "exp_quiet.float64": 0.844, "add.float32": 0.123, "subtract.float32": 0.12,
    "multiply.float32": 0.122, "true_divide.float32": 0.122, "minimum.float32": 0.121, "maximum.float32": 0.12,
    "power.float32": 0.685, "floor_divide.float32": 10.7, "remainder.float32": 7.17, "less.float32": 0.0873,
    "equal.float32": 0.0891, "add.float64": 0.258, "subtract.float64": 0.263, "multiply.float64": 0.258,
    "true_divide.float64": 0.324, "minimum.float64": 0.268, "maximum.float64": 0.265, "power.float64": 2.26,
    "floor_divide.float64": 10.8, "remainder.float64": 7.18, "less.float64": 0.199, "equal.float64": 0.203,
    "add.complex64": 0.259, "subtract.complex64": 0.259, "multiply.complex64": 0.266, "true_divide.complex64": 2.47,
    "exp.complex64": 28.5, "negative.complex64": 2.75, "absolute.complex64": 0.329, "conjugate.complex64": 0.187,
    "square.complex64": 0.211, "equal.complex64": 0.838, "add.complex128": 0.509, "subtract.complex128": 0.529,
    "multiply.complex128": 0.568, "true_divide.complex128": 2.75, "exp.complex128": 7, "negative.complex128": 1.98,
    "absolute.complex128": 0.909, "conjugate.complex128": 0.346, "square.complex128": 0.333,
    "equal.complex128": 0.868, "add.int32": 0.122, "subtract.int32": 0.125, "multiply.int32": 0.121,
    "minimum.int32": 0.121, "maximum.int32": 0.12, "floor_divide.int32": 1.65, "remainder.int32": 1.68,
    "less.int32": 0.0906, "greater_equal.int32": 0.096, "equal.int32": 0.0905, "absolute.int32": 0.0837,
    "negative.int32": 0.0828, "add.int64": 0.258, "subtract.int64": 0.265, "multiply.int64": 0.271,
    "minimum.int64": 0.264, "maximum.int64": 0.262, "floor_divide.int64": 1.93, "remainder.int64": 1.93,
    "less.int64": 0.202, "greater_equal.int64": 0.208, "equal.int64": 0.206, "absolute.int64": 0.201,
    "negative.int64": 0.189, "logical_and.bool": 0.0275, "logical_or.bool": 0.0279, "logical_not.bool": 0.0211,
    "convert.float16.float32": 1.37, "convert.float32.float16": 2.49, "convert.float32.float64": 0.149,
    "convert.float64.float32": 0.135, "convert.int32.int64": 0.151, "convert.int64.float32": 0.288,
    "convert.int64.float64": 0.298, "convert.int32.float32": 0.0786, "convert.bool.int64": 0.205,
    "convert.bool.float32": 0.0889, "convert.float32.complex64": 0.156, "convert.float64.complex128": 0.304,
    "convert.complex64.complex128": 0.301, "copy.float32": 0.111, "copy.float64": 0.184, "copy.complex64": 0.183,
    "copy.complex128": 0.362, "copy.int32": 0.0862, "copy.int64": 0.184, "copy.float16": 0.038, "copy.bool": 0.0219,
    "convert.bfloat16.float32": 0.0799, "narrow_bf16.float32": 0.516, "select_runs.float32": 0.287,
    "select_bits.bool.float32": 0.498, "select_runs.float64": 0.439, "select_bits.bool.float64": 1.04,
    "gather.float32": 0.777, "gather.float64": 1.3, "gather.complex64": 1.37, "gather.complex128": 2.54,
    "reduce.add.inner.float32": 0.193, "reduce.add.outer.float32": 0.109, "reduce.maximum.inner.float32": 0.192,
    "reduce.maximum.outer.float32": 0.101, "reduce.multiply.inner.float32": 1.05,
    "reduce.multiply.outer.float32": 0.11, "reduce.add.inner.float64": 0.209, "reduce.add.outer.float64": 0.19,
    "reduce.maximum.inner.float64": 0.22, "reduce.maximum.outer.float64": 0.184,
    "reduce.multiply.inner.float64": 0.857, "reduce.multiply.outer.float64": 0.2, "reduce.add.inner.int64": 0.122,
    "reduce.add.outer.int64": 0.176, "reduce.add.inner.complex64": 0.339, "reduce.add.outer.complex64": 0.195,
    "reduce.logical_or.inner.bool": 0.0749, "flat_arg.float32": 0.115, "first_along.float32": 0.452,
    "flat_arg.float64": 0.158, "first_along.float64": 0.583, "rows.14": 2, "rows.19": 2, "rows.23": 4,
    "rows.26": 8, "elements": 0.0846,
    "scatter.sum.float32": 1.0, "scatter.sum.float64": 1.0, "scatter.max.float32": 1.25, "scatter.sum.int64": 1.22,
    "scattered": 1.06,
}
_TURN_MICROSECONDS = {
    "step": 5.53, "call": 16.1, "block": 5.36, "turn": 0.622, "action": 5.36, "piece": 71.2, "loop": 0.00342,
}
_PRODUCT_MICROSECONDS = {
    "float32": (
        21.1, 2.53, 2.66, 2.76, 2.57, 2.74, 2.63, 2.63, 2.61, 2.66, 2.77, 3.23, 2.63, 2.59, 2.63, 2.73, 2.78, 3.56,
        2.67, 2.58, 2.68, 2.98, 3.45, 5.26, 2.66, 2.66, 2.8, 3.38, 5.2, 15.7, 2.74, 2.87, 3.39, 6.22, 17.8, 81.2, 2.69,
        2.61, 2.59, 2.67, 2.78, 2.88, 3.59, 3.61, 3.56, 3.75, 3.89, 4.4, 3.6, 3.65, 3.53, 3.8, 4.19, 6.02, 3.64, 4.03,
        3.57, 3.95, 4.94, 8.5, 3.7, 3.77, 3.88, 4.88, 8.62, 58, 4.11, 4.17, 5.03, 8.68, 79.5, 330, 2.56, 3.36, 2.74,
        2.71, 2.95, 3.62, 3.54, 3.77, 3.93, 3.65, 4.04, 5.37, 3.58, 3.51, 3.65, 3.85, 5.04, 9.44, 3.72, 3.62, 3.96,
        4.89, 8.13, 34.2, 4.03, 4.06, 5, 8.77, 30.4, 134, 7.51, 7.6, 10.5, 43.3, 153, 714, 2.52, 2.67, 2.76, 2.8, 3.48,
        5.77, 3.94, 4.12, 4.27, 4.01, 5.04, 9.89, 3.72, 3.63, 4.07, 4.75, 8.5, 30.7, 3.96, 4.05, 5.11, 8.55, 25.7, 107,
        5.77, 6.11, 9.34, 28.3, 101, 374, 22.6, 24.7, 49.8, 138, 434, 1740, 2.7, 2.7, 3.01, 3.53, 5.89, 15.5, 5.54,
        5.59, 5.9, 5.48, 9.04, 66.8, 3.91, 4.07, 4.82, 8.5, 29.4, 114, 4.82, 5.77, 9.44, 25.5, 96.2, 363, 9.48, 12.1,
        28.8, 94.1, 340, 1360, 78.6, 149, 198, 457, 1470, 5940, 2.74, 3.16, 4.62, 6.12, 18.2, 63.7, 11.4, 11.9, 13.7,
        10.4, 67.4, 271, 5.23, 5.48, 9.51, 30.4, 108, 452, 8.72, 12.2, 27.7, 99.1, 359, 1470, 31.1, 40.5, 102, 345,
        1330, 5550, 583, 589, 762, 1760, 5710, 22200,
    ),
    "float64": (
        2.61, 2.54, 1930, 2.61, 2.72, 2.9, 2.55, 2.65, 2.55, 2.68, 2.89, 3.85, 2.68, 2.69, 2.57, 2.79, 3.34, 5.82,
        2.64, 2.73, 2.73, 3.13, 4.26, 9.31, 2.67, 2.83, 3, 4.24, 8.88, 39.6, 2.93, 3.37, 4.25, 9.43, 38.1, 156, 2.57,
        2.64, 2.71, 2.63, 2.66, 3.24, 3.63, 3.55, 3.68, 3.84, 3.9, 5.25, 3.74, 3.71, 3.63, 3.84, 4.28, 6.78, 3.67,
        3.58, 3.76, 4.38, 5.91, 13.8, 3.87, 4.2, 4.41, 6.18, 13.9, 114, 4.75, 4.82, 7, 15.3, 112, 501, 2.57, 2.61,
        2.63, 2.73, 3.11, 4.34, 3.64, 3.61, 3.67, 3.83, 4.46, 7.02, 3.61, 3.65, 3.74, 4.13, 6.12, 13.6, 3.7, 3.83,
        4.25, 5.88, 13, 69.2, 4.41, 4.7, 6.5, 13.4, 60, 319, 10.8, 15.2, 18.2, 79.5, 262, 1290, 2.63, 5.06, 5.2,
        2.99, 4.16, 14.3, 4.04, 7.26, 4.01, 7.54, 6.28, 24.1, 6.09, 6.06, 4.21, 8.52, 12.9, 82.5, 9.76, 4.97, 6.27,
        13.2, 53.9, 203, 6.94, 8.64, 15.4, 48.5, 198, 858, 40.8, 44.8, 65.8, 201, 746, 3590, 2.74, 2.89, 3.29, 4.37,
        8.66, 34.4, 5.69, 5.64, 4.71, 6.47, 14.1, 138, 4.09, 4.62, 6.19, 13, 64.2, 254, 6.27, 7.34, 14.2, 50.8, 202,
        814, 18.4, 22.8, 54, 177, 782, 2970, 201, 149, 253, 738, 2940, 11400, 2.84, 4.14, 4.71, 9.18, 46.4, 548,
        12.3, 11.7, 8.16, 15.9, 143, 887, 5.79, 7.27, 14.2, 67.8, 261, 1240, 14.6, 20.9, 60, 191, 865, 3290, 72.3,
        79.7, 203, 681, 3070, 13300, 531, 584, 1080, 3340, 11000, 43900,
    ),
    "complex64": (
        2.5, 2.57, 2.51, 2.5, 2.62, 2.94, 2.49, 2.56, 2.55, 2.59, 2.84, 3.61, 2.56, 2.58, 2.65, 2.84, 3.14, 4.44,
        2.7, 2.6, 2.97, 3.09, 4.31, 10.5, 2.7, 2.79, 3.09, 4.19, 9.01, 44.2, 3.05, 3.27, 4.42, 9.18, 44.1, 173, 2.62,
        2.46, 2.54, 2.55, 2.71, 3.07, 5.64, 3.66, 3.66, 4.07, 5.07, 9.22, 3.61, 3.75, 3.69, 4.23, 5.92, 11.7, 3.76,
        3.86, 4.11, 5.85, 12.1, 37, 3.92, 4.27, 6.08, 12.5, 47, 172, 4.76, 6.01, 14, 50.4, 181, 921, 2.62, 2.63,
        2.54, 2.75, 3.09, 4.15, 3.79, 3.81, 4.1, 4.35, 6.79, 15.7, 3.76, 3.84, 3.96, 5.34, 10, 30.1, 3.93, 4.63,
        5.13, 9.45, 28.3, 99.3, 4.74, 5.75, 11, 27.8, 107, 454, 12.8, 14.4, 33.1, 137, 530, 2040, 2.61, 2.65, 2.75,
        3.26, 4.1, 9.72, 3.84, 3.91, 4.35, 6.24, 13.7, 43.1, 4.27, 4.3, 5.35, 9.38, 26.3, 95.3, 4.61, 5.61, 9.53, 25,
        94.7, 652, 8.42, 11.1, 27.3, 93.4, 368, 1870, 46.1, 53.3, 116, 367, 1650, 6450, 2.88, 2.97, 3.41, 5.43, 9.13,
        57.2, 4.52, 4.75, 6.06, 13.3, 40.9, 191, 5.57, 6.15, 10, 25.9, 92.1, 433, 7.71, 11.4, 25.8, 90.5, 352, 1510,
        20.4, 35.2, 92.7, 343, 1400, 5620, 188, 203, 438, 1420, 5420, 22500, 3.82, 4.31, 5.37, 11.9, 41.1, 243, 6.42,
        8.31, 13.4, 39.3, 182, 688, 9.61, 13.5, 33.6, 96.7, 395, 1890, 21, 35.4, 94.1, 348, 1410, 5640, 71, 122, 358,
        1370, 5820, 22000, 842, 850, 1690, 5760, 21300, 84500,
    ),
    "complex128": (
        2.57, 2.58, 2.58, 2.69, 2.81, 3.61, 2.58, 2.63, 2.59, 2.67, 3.01, 4.21, 2.58, 2.61, 2.73, 2.84, 3.58, 6.58,
        2.68, 2.6, 2.79, 3.57, 5.86, 19.9, 2.82, 2.94, 3.87, 6.21, 20, 69.1, 3.57, 4.11, 6.51, 20, 79.7, 743, 2.61,
        2.64, 2.55, 2.63, 2.88, 3.51, 3.64, 3.64, 3.6, 4.03, 5.17, 9.04, 3.59, 3.68, 4.07, 4.86, 8.72, 24, 3.83,
        3.92, 4.93, 9.31, 26.8, 102, 4.24, 4.98, 8.83, 28.1, 106, 457, 6.41, 8.94, 23.7, 95.8, 412, 1900, 2.53, 2.56,
        2.63, 2.83, 3.56, 6.02, 3.59, 3.7, 3.92, 4.77, 7.9, 20.9, 3.77, 3.82, 4.62, 7.22, 17, 59.4, 4.17, 4.62, 7.14,
        17.8, 61.8, 252, 6.94, 8.5, 19.3, 60.8, 234, 981, 26.4, 29.5, 65.3, 224, 876, 4410, 2.6, 2.72, 2.93, 3.61,
        6.16, 20.5, 3.79, 4.03, 4.78, 7.55, 19.2, 75.7, 4.31, 4.72, 7.79, 16.3, 53.4, 233, 5.89, 7.98, 16.4, 50, 196,
        884, 16.2, 21.1, 55.8, 197, 767, 3160, 107, 113, 238, 754, 2950, 12300, 2.85, 3.07, 3.79, 6.31, 19.8, 68.3,
        7.16, 7.18, 8.22, 19.8, 68.2, 352, 5.92, 8.23, 16.6, 51.9, 200, 1010, 11.8, 19.8, 52.2, 184, 727, 3190, 49.7,
        73.1, 207, 717, 2960, 11700, 449, 435, 885, 2890, 12200, 45600, 3.88, 4.62, 7.1, 21.6, 74.2, 943, 7.07, 9.53,
        21.1, 72.4, 365, 1720, 12.7, 21.5, 56.3, 198, 914, 4710, 38.8, 71.1, 205, 744, 3120, 13300, 203, 324, 837,
        2910, 11400, 45700, 1890, 1870, 3710, 11600, 44300, 177000,
    ),
}
# fmt: on

POINTS = tuple((name, 1e-9 * x) for name, x in _NANOSECONDS.items())
TURNS = tuple((name, 1e-6 * x) for name, x in _TURN_MICROSECONDS.items())
PRODUCTS = tuple((name, tuple(1e-6 * x for x in row)) for name, row in _PRODUCT_MICROSECONDS.items())
