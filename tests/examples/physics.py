"""References of docs/examples/physics."""

from __future__ import annotations

from itertools import product

import numpy as np

from tests.examples.harness import Array, Example


def symmetric_integrals(rng: np.random.Generator, n: int) -> Array:
    """Random (pq|rs) with the eight symmetries of real orbitals."""
    V = rng.normal(size=(n, n, n, n))
    V = V + V.transpose(1, 0, 2, 3)
    V = V + V.transpose(0, 1, 3, 2)
    return V + V.transpose(2, 3, 0, 1)


def mp2(rng: np.random.Generator) -> Example:
    o, v = 3, 4
    V = symmetric_integrals(rng, o + v)[:o, o:, :o, o:].copy()
    eo, ev = -rng.uniform(1, 2, o), rng.uniform(1, 2, v)
    opposite = same = 0.0
    for i, j, a, b in product(range(o), range(o), range(v), range(v)):
        gap = eo[i] + eo[j] - ev[a] - ev[b]
        opposite += V[i, a, j, b] ** 2 / gap
        same += V[i, a, j, b] * (V[i, a, j, b] - V[i, b, j, a]) / gap
    parts = {"energy": opposite + same, "opposite": opposite, "same": same}
    return Example({"V": V, "eo": eo, "ev": ev}, {name: np.asarray(e) for name, e in parts.items()})


def fock(rng: np.random.Generator) -> Example:
    n, occupied = 5, 2
    integrals = symmetric_integrals(rng, n)
    h = rng.normal(size=(n, n))
    h = h + h.T
    C = np.linalg.qr(rng.normal(size=(n, occupied)))[0]
    D = 2 * C @ C.T
    F = h.copy()
    for p, q, r, s in product(range(n), repeat=4):
        F[p, q] += D[r, s] * (integrals[p, q, r, s] - 0.5 * integrals[p, r, q, s])
    return Example({"I": integrals, "h": h, "C": C}, {"F": F, "energy": np.asarray(0.5 * (D * (h + F)).sum())})


def orbital_integrals(rng: np.random.Generator) -> Example:
    integrals, C = rng.normal(size=(3, 3, 3, 3)), rng.normal(size=(3, 2))
    V = (np.kron(C, C).T @ integrals.reshape(9, 9) @ np.kron(C, C)).reshape(2, 2, 2, 2)
    return Example({"I": integrals, "C": C}, {"V": V})


def ccd_residual(rng: np.random.Generator) -> Example:
    """The diagrams of coupled cluster doubles, each term written out and antisymmetrised by its permutations."""
    o, v = 2, 3
    orbitals = range(o + v)
    A = rng.normal(size=(len(orbitals),) * 4)
    A = A - A.transpose(1, 0, 2, 3)
    A = A - A.transpose(0, 1, 3, 2)
    A = A + A.transpose(2, 3, 0, 1)  # <pq||rs>
    occ, vir = slice(0, o), slice(o, None)
    eo, ev = -rng.uniform(1, 2, o), rng.uniform(1, 2, v)
    T = rng.normal(size=(v, v, o, o))
    T = T - T.transpose(1, 0, 2, 3)
    T = T - T.transpose(0, 1, 3, 2)
    v4 = A[occ, occ, vir, vir]

    def swap_ij(x: Array) -> Array:
        return x - x.transpose(0, 1, 3, 2)

    def swap_ab(x: Array) -> Array:
        return x - x.transpose(1, 0, 2, 3)

    r = A[vir, vir, occ, occ].copy()
    r += np.einsum("abcd,cdij->abij", A[vir, vir, vir, vir], T) / 2
    r += np.einsum("klij,abkl->abij", A[occ, occ, occ, occ], T) / 2
    r += swap_ij(swap_ab(np.einsum("kbcj,acik->abij", A[occ, vir, vir, occ], T)))
    r += np.einsum("klcd,cdij,abkl->abij", v4, T, T, optimize=True) / 4
    r += swap_ij(np.einsum("klcd,acik,bdjl->abij", v4, T, T, optimize=True))
    r -= swap_ij(np.einsum("klcd,abik,cdjl->abij", v4, T, T, optimize=True)) / 2
    r -= swap_ab(np.einsum("klcd,acij,bdkl->abij", v4, T, T, optimize=True)) / 2
    new = r / (eo[None, None, :, None] + eo - ev[:, None, None, None] - ev[None, :, None, None])
    blocks = {
        "oooo": A[occ, occ, occ, occ],
        "vvvv": A[vir, vir, vir, vir],
        "ovvo": A[occ, vir, vir, occ],
        "oovv": v4,
    }
    inputs = {"eo": eo, "ev": ev, "T": T, **{name: block.copy() for name, block in blocks.items()}}
    energy = np.einsum("ijab,abij->", v4, new) / 4
    return Example(inputs, {"new": new, "energy": np.asarray(energy)}, looser=10)


def nbody(rng: np.random.Generator) -> Example:
    n, steps, dt = 5, 4, 0.01
    x, v, m = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.uniform(1, 2, n)
    inputs = {"x": x.copy(), "v": v.copy(), "m": m}

    def pull(x: Array) -> Array:
        a = np.zeros_like(x)
        for i in range(n):
            for j in range(n):
                a[i] += m[j] * (x[j] - x[i]) / (((x[j] - x[i]) ** 2).sum() + 0.01) ** 1.5
        return a

    for _ in range(steps):
        v = v + dt / 2 * pull(x)
        x = x + dt * v
        v = v + dt / 2 * pull(x)
    energy = 0.5 * (m[:, None] * v**2).sum()
    for i in range(n):
        for j in range(i):
            energy -= m[i] * m[j] / np.sqrt(((x[i] - x[j]) ** 2).sum() + 0.01)
    return Example(inputs, {"x": x, "v": v, "energy": np.asarray(energy)}, {"steps": steps})


def ising(rng: np.random.Generator) -> Example:
    beta, J, field, spins = 0.4, 1.0, 0.1, 8
    total = 0.0
    for s in product((1, -1), repeat=spins):
        total += np.exp(beta * sum(J * s[i] * s[i - 1] + field * s[i] for i in range(spins)))
    return Example({}, {"free": np.asarray(-np.log(total) / (beta * spins))}, {"k": 3})


def matrix_product_state(rng: np.random.Generator) -> Example:
    L, D = 4, 3
    A = rng.normal(size=(L, D, D, 2)) + 1j * rng.normal(size=(L, D, D, 2))
    Z = np.diag([1.0, -1.0]).astype(np.complex128)
    state = A[0, 0]  # the whole vector of 2^L amplitudes
    for site in A[1:]:
        state = np.einsum("b...,bcs->c...s", np.moveaxis(state, 0, 0), site)
    psi = state[0].reshape((2,) * L)
    norm = (np.abs(psi) ** 2).sum()
    magnetisation = []
    for i in range(L):
        up = np.moveaxis(psi, i, 0)
        magnetisation.append(((np.abs(up[0]) ** 2).sum() - (np.abs(up[1]) ** 2).sum()) / norm)
    return Example({"A": A, "O": Z}, {"norm": np.asarray(norm), "magnetisation": np.array(magnetisation)})


def lennard_jones(rng: np.random.Generator) -> Example:
    grid = np.array(list(product(range(3), repeat=3)), float) * 3.2
    x = grid[:9] + 0.3 * rng.normal(size=(9, 3))

    def pairs(x: Array) -> list[Array]:
        images = [np.array(shift) * 10.0 for shift in product((-1, 0, 1), repeat=3)]
        found = []
        for i in range(9):
            for j in range(i):
                found += [r for r in (x[i] - x[j] + image for image in images) if (r**2).sum() < 9]
        return found

    def energy_of(x: Array) -> float:
        return sum(4 * ((r @ r) ** -6 - (r @ r) ** -3) for r in pairs(x))

    force = np.zeros((9, 3))
    for i, c in np.ndindex(9, 3):
        moved = np.zeros((9, 3))
        moved[i, c] = 1e-5
        force[i, c] = -(energy_of(x + moved) - energy_of(x - moved)) / 2e-5
    virial = sum(24 * (2 * (r @ r) ** -6 - (r @ r) ** -3) for r in pairs(x))
    expected = {"energy": np.asarray(energy_of(x)), "force": force, "virial": np.asarray(virial)}
    return Example({"x": x}, expected, looser=1e4)
