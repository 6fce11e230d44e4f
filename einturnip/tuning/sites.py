"""Numbers that tune the division of work among sites."""

from __future__ import annotations

# Sites
MAX_PARTS = 16
"""[tiles] Tiles along one label of a call, if one tile size serves calls of several sizes. Limit: the plan's size."""
MAX_WAIT = 0.05
"""[share] A total arrives at most this later, in bytes that one site receives, than the operands and state of a call.
Chosen."""
MAX_MISMATCH = 0.02
"""[share] A tile divides a call if its nearest multiple differs from the call's extent by at most this. Chosen."""
FEW_ALIGNED_CALLS = 1 << 12
"""[calls] Up to this many kernel calls, one tile size divides the calls of all statements by EinDecomp. Chosen."""
MAX_ALIGNED_TIMES = 1.5
"""[times] So it does up to this multiple of the calls in tile sizes for each statement. Chosen."""
MOSTLY_READ = 0.75
"""[share] A site that reads at least this part of a tile receives all of it. Chosen."""
MASK_PARTS = 256
"""[parts] A kernel call is divided into at most this many parts to find which share of it a mask leaves. Limit: the
search's time."""
MAX_SHARES = 4096
"""[shares] The work is divided into at most this many equal shares for sites of unlike rates. Limit: the search's
time."""
MAX_SHARES_OF_SITE = 64
"""[shares] The same for each site on average. Limit: the search's time."""
SHARES_UNEVEN = 1.03
"""[times] Shares are even enough if the slowest site takes at most this times the mean. Chosen."""
WORK_UNEVEN = 1.05
"""[times] The same for the calls of a program; if they are less even, more shares are tried. Chosen."""
CALLS_OF_SHARE = (1, 2, 3, 4, 6, 8)
"""[calls] Calls of a statement for each share of the work, tried if there is a mask. Limit: the search's time;
up to 8 calls balance causal attention within 1.05 of the mean."""
MAX_CALLS_BALANCED = 20_000
"""[calls] More than one call for each share is tried if all statements together have at most as many. Limit: the
search's time."""
MAX_UNEVEN = 1.25
"""[times] With the most even shares, a site that would take more than this times the mean is refused. Chosen."""
NUMBERS_OF_SHARES = 3
"""[divisions] Divisions into shares that are compared by their bytes. Limit: the search's time."""
ASSIGNMENT_PASSES = 2
"""[passes] Passes that assign all groups to devices again. Limit: the search's time."""
