"""The arena under drawn requests: refuses one only if no contiguous free bytes are large enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from einturnip.memgraph.arena import FREE, Arena, Segment


def largest_run(arena: Arena) -> int:
    """Return the bytes of the longest run of free segments."""
    best = run = 0
    for seg in arena:
        run = run + seg.size if seg.value == FREE else 0
        best = max(best, run)
    return best


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30), st.booleans()), max_size=120), st.integers(0, 30))
def test_what_fits_side_by_side_is_found(requests: list[tuple[int, int, bool]], largest: int) -> None:
    arena, held = Arena(100, 1, largest), list[Segment]()
    for op, (size, which, frees) in enumerate(requests):
        if frees and held:
            arena.release(held.pop(which % len(held)), (op,), True)
            continue
        room = largest_run(arena)
        seg = arena.take(size, op)
        assert (seg is not None) == (room >= size)
        if seg is not None:
            held.append(seg)
    assert arena.free_nbytes == 100 - sum(seg.size for seg in held)
