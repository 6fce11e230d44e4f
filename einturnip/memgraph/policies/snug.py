"""An arena that keeps large free segments whole: small values left in them would push out large ones later."""

from __future__ import annotations

from bisect import bisect_left

from einturnip.memgraph.arena import Arena, Segment

# A free segment that is at most so many times larger than what is asked for counts as fitting.
SNUG = 2


class SnugArena(Arena):
    """As ``Arena``, but a segment that fits is taken before any that is much larger, however old that one is."""

    def take(self, size: int, value: int) -> Segment | None:
        """The oldest free segment that fits snugly; else the smallest that is large enough; else a run."""
        best: Segment | None = None
        for s in self._sizes[bisect_left(self._sizes, size) :]:
            if s >= SNUG * size and best is not None:
                break
            seg = self._top(s)
            if seg is not None and (best is None or seg.newest < best.newest):
                best = seg
        if best is None and self.free_nbytes >= size:
            best = self._merge_run(size)
        return None if best is None else self._hold(best, size, value)
