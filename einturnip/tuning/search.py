"""Numbers that tune the search: costs, fusion, tile sizes, and which plans are made and compared."""

from __future__ import annotations

# Cost
CACHED_NBYTES = 1 << 18
"""[bytes] Operands of less in total are priced as if they were in the cache. Chosen."""
SERIALIZED_SCATTERS = 2
"""[times] Scatters by NumPy hold the interpreter, so that two take this times one. Follows: the interpreter has one
lock."""
SMALL_PRODUCT = 1 << 18
"""[points] Below, the call of BLAS itself dominates a product. Chosen."""
BYTE_NS = 0.032
"""[ns] One byte of NumPy's multiplication. Measured: multiply.float32 of the default machine."""
LANE = 0.1
"""[points] Time of one lane's operation, in points of NumPy's multiplication, which goes through the cache. Chosen."""
PACKED_LANE = 2.0
"""[points] Time of one operation in a register tile, in the same unit. Chosen."""
STRIP_SLOWDOWN = 2.6
"""[times] Slowdown of reducing columns in strips of a few vectors instead of row by row. Measured: 14 GB/s instead of
37."""
RESCALED_PASSES = 8
"""[passes] Passes over a sum's state when its maxima have changed. Chosen."""
CACHED_OUTPUT_NBYTES = 64 << 20
"""[bytes] Smaller outputs stay in the page cache until they are complete, so that no page of them is read back.
Chosen."""
COPY_COST = 0.125
"""[times] Time of copying a byte in memory, relative to reading it from a file. Chosen."""
COPIED_AT_ONCE = 0.25
"""[share] Largest total size of the tiles that one task copies into a box, relative to the box; one tile may be larger.
Chosen."""

# Eingraph: orders of contraction
MIN_ORDERS = 4
"""[orders] Greedy orders that are drawn at least. Chosen."""
MAX_ORDERS = 128
"""[orders] Greedy orders that are drawn at most. Limit: the search's time."""
MAX_ORDERS_WORSE = 24
"""[orders] Consecutive orders without improvement after which the drawing ends. Measured: 400 factors in half the time,
with 0.8 to 1.9 times the operations; with 8 up to 4.6 times."""
PAIR_OPERATIONS = 2.5e6
"""[operations] Price of one drawn order, for each pair of factors with a common label. Chosen."""
FACTOR_OPERATIONS = 5e7
"""[operations] The search may cost as much as the product, plus this for each factor. Measured: beside 2e8, orders for
30 to 400 factors in a third of the time, with 0.2 to 1.75 times the operations; 2e7 gives up to 5 times more."""
MAX_ORDER_OPERATIONS = 1e11
"""[operations] Price of the whole search, at most. Limit: the search's time."""
INFEASIBLE_OPERATIONS = 10**36
"""[operations] No machine could finish them: the search stops after MIN_ORDERS. Chosen."""
SUBTREE_OPERATIONS = 5e7
"""[operations] Price of optimizing one subtree of an order. Chosen."""
BEYOND_LIMIT_FACTOR = 1e6
"""[times] Factor of the greedy choice on the size of an intermediate over the limit. Chosen."""
SPILL_OPERATIONS = 1500
"""[operations] Price of each element over the limit, which is written and read again. Chosen."""
MAX_EXHAUSTIVE = 6
"""[factors] Factors of an exhaustive search, which visits 3^n splits of subsets. Limit: the search's time."""

# Eingraph: loops
ROLLED_EQUATIONS = 300
"""[equations] A loop that unrolls to fewer is unrolled, so that its iterations can be fused and overlap. Chosen."""
ROLLED_ITERATIONS = 8
"""[iterations] A loop with fewer is unrolled. Chosen."""

# Eingraph: fusion and recomputation
MIN_SAVED_NBYTES = 64 << 10
"""[bytes] Saved bytes for which a separate fused kernel is worthwhile. Chosen."""
MAX_UNTILED = 512
"""[elements] Labels that cannot be tiled make tiles long and thin: past this extent a contraction is faster with stored
operands, except where those would not fit in memory. Chosen."""
MAX_UNTILED_OF_LARGE = 1 << 14
"""[elements] Past this extent it always is. Chosen."""
MAX_FUSED_STEPS = 24
"""[steps] Steps of one fused group; more would keep too many values at once. Chosen."""
MAX_TERM_NODES = 1000
"""[nodes] Nodes of a join after the maps that it reads are substituted. Limit: the code's size."""
MAX_ROW_NBYTES = 256 << 10
"""[bytes] Row of any one tensor; a longer one would leave the cache before it is read again. Chosen."""
MAX_READ_RATIO = 1.25
"""[times] Operands are read twice instead of storing a node up to this multiple of the node's bytes. Chosen."""
MAX_EXTRA_OPERATORS = 8
"""[operators] Additional operators per point where a node is recomputed at each access of its reader. Chosen."""
MAX_JOIN_NODES = 160
"""[nodes] Nodes of a join; a larger one would compile slowly and run short of registers. Chosen."""
MAX_SLOTS = 10
"""[operands] Operands of a join, for the same reasons. Chosen."""

# Tiling: classes of labels
MAX_CLASSES = 500
"""[classes] With more, einsums of one form share their classes. Limit: the search's time."""
SLICE_NBYTES = 1 << 16
"""[bytes] A tensor that is read at constant indices of an axis is made slice by slice if a slice has as many.
Chosen."""
MAX_SLICES = 4096
"""[slices] And if there are at most as many slices. Limit: the plan's size."""
SMALL_TENSOR_NBYTES = 1 << 16
"""[bytes] A smaller tensor unites at most MAX_ALIKE labels of a node: keeping it in one tile, or copying it, costs
almost nothing. Chosen."""
MAX_ALIKE = 2
"""[labels] Halving a class of ten labels would make a node's tiles 2^10 times smaller. Chosen."""
NEARLY_EVENLY = 0.01
"""[share] Tiles divide a call nearly evenly if their extents exceed it by at most this. Chosen."""
FEW_PIECES = 8
"""[pieces] Fewer are searched linearly. Chosen."""

# Tiling: sizes of tiles
EFFECTIVE_SHARE = 0.5
"""[share] Halving a class is effective if it saves this part of what the best halving saves. Chosen."""
CLOSE = 1.3
"""[times] A divisor of a chunk replaces an extent that differs by at most this factor. Chosen."""
THINNEST_PANEL = 512
"""[elements] Panels of a contraction are not made thinner; below, the product loses its rate. Measured: rates of
products in Machine.products."""
NEAR_BEST_TIME = 1.25
"""[times] Finer tilings are searched for only if the coarsest takes more than this multiple of the best possible time.
Chosen."""
COLD_READ_WEIGHT = 8.0
"""[times] Price of a byte read, in its transfer time, even if kernels hide it: files may be cold and disks are shared.
Chosen: products then stay near the I/O lower bound unless shorter runs cost more."""
SHARE_STREAMED = 0.99
"""[share] Part of the capacity that a block may fill if operands come from files. Chosen."""
SHARE_COMPUTED = 0.5
"""[share] The same if kernels compute operands. Chosen."""
SHARE_KEPT = 0.15
"""[share] The same if another node reads the output: its block needs memory at the same time. Chosen."""
COMPUTED_AHEAD = 2
"""[tiles] Prefetched tiles of each operand if kernels compute some of them; otherwise one. Chosen."""
TURNING_TILES = 2
"""[tiles] Accumulators of the next block that are in memory with those of the last at a turn. Chosen."""
STREAMED_TILES = 2
"""[tiles] Tiles of the streamed operand in memory while the shared data stays at a turn. Chosen."""
MAX_BLOCK_CANDIDATES = 20_000
"""[candidates] Blocks that are priced for one einsum. Limit: the search's time."""
FEW_LABELS = 4
"""[labels] Einsums with more get fewer candidates; tables have an entry per candidate and label. Limit: the search's
memory."""
PRODUCT_SIDES = (1280, 640, 512, 320)
"""[elements] Sides of tiles at which a product runs at nearly full rate. Measured: rates of products in
Machine.products."""
PRODUCT_DEPTHS = (1024, 512, 256, 192, 128, 96, 64)
"""[elements] Depths of a product's panels. Measured: rates of products in Machine.products."""
MAX_BLOCKS = 64
"""[blocks] Blocks along one label. Limit: the search's time."""
MORE_BLOCKS = 1
"""[blocks] Blocks that are tried beyond those that fill the memory. Limit: the search's time."""
MAX_SHAPES = 4
"""[shapes] Shapes of blocks that are tried. Limit: the search's time."""
ACCUMULATOR_SHARE = 0.96
"""[share] Part of the memory for a block's accumulators; the rest is for panels. Chosen."""
THINNEST_STEP = 128
"""[elements] Steps of the refinement make no tile thinner. Measured: rates of products in Machine.products."""
STEP_FACTORS = (0.5, 0.75, 1.5, 2.0)
"""[times] Factors of a class's number of tiles that a step tries, besides one more and one less. Chosen."""

# Tiling: EinDecomp
MAX_TILED_LABELS = 10
"""[labels] A node with more is tiled along its longest ones only. Limit: the search's time."""
MAX_PARTITIONINGS = 2000
"""[partitionings] Partitionings of one node; with more it is tiled along fewer labels. Limit: the search's time."""
MAX_READERS = 8
"""[readers] A tensor with more is cut off from them. Limit: the search's time."""
MAX_GAP = 1.005
"""[times] If that costs at most this multiple of the lower bound. Chosen."""
FAR_SHARE = 0.25
"""[share] Readers are distant if more of all nodes is between them. Chosen."""
MAX_FREED = 16
"""[nodes] Nodes before a tensor that was cut off, which are chosen again with it. Limit: the search's time."""
LARGEST_TABLE = 4_000_000
"""[entries] Entries of a table that an elimination makes. Limit: the search's memory."""
MINIMISED_AT_ONCE = 1 << 16
"""[entries] Entries of one block of a minimisation, which stays in the cache. Chosen."""
MAX_LAYER_OPERATIONS = 1 << 26
"""[operations] Operations of one product of tables. Limit: the search's time."""
MAX_REPEATED_OPERANDS = 8
"""[operands] Nodes with more are treated as unique. Limit: the search's time."""
MAX_PERIODS = 4
"""[periods] Periods that are tried, most frequent first. Limit: the search's time."""
LONG_SEGMENT = 8
"""[nodes] Two segments make a run if they have as many, else three do. Chosen."""

# Planner: which tilings
SETS = 12
"""[sets] Working sets that should fit at once, for overlap and for blocks of accumulators. Chosen."""
MIN_SETS = 3
"""[sets] Tilings of which fewer fit are a last resort. Chosen."""
CROWDING = 0.5
"""[share] By so much the price rises as the number of sets that fit falls to one. Chosen."""
LARGEST_WORKING_SET = 50 << 20
"""[bytes] Kernels run at full rate with tiles of this size; larger ones only prevent overlap. Measured: rates of
products in Machine.products."""
MAX_CALLS = 1_000_000
"""[calls] Kernel calls of one node. Limit: the plan's size."""
MAX_PRICED = 10
"""[tilings] Tilings that are priced. Limit: the search's time."""
MAX_LOWERED = 6
"""[tilings] Tilings that are lowered and compared. Limit: the search's time."""
FEW_READS = 1.003
"""[times] A tiling with few reads reads by formula at most this multiple of the target bytes. Chosen."""
FEWER_READS = 0.99
"""[times] A tiling that reads at most this multiple of another reads clearly less. Chosen."""
MAX_EXCESS = 1.15
"""[times] Tilings with few reads cost at most this multiple of the cheapest. Chosen."""
EXCESS_STEP = 0.02
"""[share] Costs of tilings with few reads that differ by less are equal. Chosen."""
MAX_FREE_TILES = 2
"""[tiles] More free tiles bring no advantage. Chosen."""
MAX_FEWER_READS = 8
"""[tilings] Tilings with few reads that are lowered. Limit: the search's time."""
MAX_GROUPS_BLOCKED = 200
"""[classes] Equivalence classes for which I/O blocks are priced. Limit: the search's time."""
MAX_GROUPS_FITTED = 24
"""[classes] Equivalence classes for which tilings are fitted to the memory. Limit: the search's time."""
MAX_CLASS_PRICES = MAX_PRICED * MAX_GROUPS_FITTED
"""[prices] Prices of classes for all tilings; with many classes, consecutive tilings differ in few. Follows: all
classes of each priced tiling."""
MAX_REFINEMENTS = 60
"""[prices] Prices computed to refine one tiling. Limit: the search's time."""
MAX_EXTENTS = 16
"""[extents] Extents of a task (operands, result, workspace) that are rounded up to pages. Chosen."""
CANONICAL_SHARE = 16
"""[parts] With --reproducible, a kernel may hold one such part of the bytes of all tensors, within the next two limits.
Chosen."""
CANONICAL_MIN_NBYTES = 4 << 20
"""[bytes] Lower limit. Chosen."""
CANONICAL_MAX_NBYTES = 8 << 20
"""[bytes] Upper limit: small compared with the 100 MiB that the minimum memory of a process leaves, and products run at
nearly full rate. Measured: rates of products in Machine.products."""

# Planner: which plans are made and compared
OP_SECONDS = 7e-5
"""[seconds] Planning of one op: tasks, placement, simulation. Chosen."""
CLASS_OPS = 7
"""[ops] Pricing the kernels of one einsum takes as long as planning this many ops. Measured: 0.4 to 0.7 ms in networks
of 119 to 399 tensors."""
NODE_OPS = 30
"""[ops] Planning a variant takes as long as planning this many ops for each of its nodes: tilings are proposed and
priced. Measured: 2 ms in networks of 119 to 399 tensors."""
FREE_OPS = 3000
"""[ops] Ops of plans that are made even if nothing can be saved: the prediction errs. Chosen."""
OPS_COMPARED = 6000
"""[ops] Ops of plans that are made for comparison. Limit: the search's time."""
OPS_COMPARED_PER_SECOND = 6000
"""[ops/s] And more ops for each second of the predicted run. Limit: the search's time."""
OPS_COMPARED_LONG = 24_000
"""[ops] The same for runs of more than 3.2 s. Limit: the search's time."""
OPS_COMPARED_LONG_PER_SECOND = 430
"""[ops/s] The same: 3 % of the predicted run at OP_SECONDS. Limit: the search's time."""
MAX_OPS_COMPARED = 300_000
"""[ops] The same for very long runs, which only recomputation reaches. Limit: the search's time."""
SHARE_GIVEN = 0.7
"""[share] Part of these ops for plans in the given memory; smaller arenas get the rest. Chosen."""
SHARE_BLOCKED = 0.12
"""[share] The same for products, which the formula predicts better. Chosen."""
SHARE_NEAR_BOUND = 0.33
"""[share] Additional part for plans that move fewer bytes. Chosen."""
MIN_SAVING = 2.0
"""[times] A product's tiling is lowered only if by formula it saves this multiple of the time that lowering takes.
Chosen."""
ALWAYS_COMPARED = 3
"""[tilings] A product's tilings, cheapest first, that are lowered in any case if the best plan reads each byte once:
the formula does not know how first loads and last stores overlap. Chosen."""
PROMISING = 0.9
"""[share] Without products, the cheapest tiling is always lowered if by formula it costs at most this part of the best
so far. Chosen."""
MAX_WORSE = 2
"""[tilings] Consecutive tilings without improvement after which the search ends. Limit: the search's time."""
MAX_CAPACITIES_WORSE = 3
"""[capacities] Consecutive capacities without improvement after which the search ends. Limit: the search's time."""
MAX_PER_CAPACITY = 2
"""[tilings] Tilings that are tried for each capacity. Limit: the search's time."""
MAX_MORE_BLOCKED = 1.02
"""[times] A product's tiling is lowered for less memory only if by formula it costs at most this multiple of the best.
Chosen."""
MAX_MORE = 1.3
"""[times] The same without products: there the formula overestimates the cost of few working sets. Chosen."""
MIN_PAGES_SAVED = 0.01
"""[share] A product's plan that reads each byte once is tried in a smaller arena only if that saves this part of its
time. Chosen."""
MAX_USUAL_RATIO = 1.2
"""[times] Usual ratio of the cost of a product's plan to its formula; a higher one of a plan that reads bytes again is
not expected of others. Measured: 1.08 to 1.22 for some forty plans."""
MIN_IMPROVEMENT = 0.999
"""[share] An improvement that leaves more of the time does not count. Chosen."""
NEAR_MIN_BYTES = 1.091
"""[times] A plan that moves at most this multiple of the minimum bytes may replace the fastest; leaves a margin for
other reads of the process. Chosen."""
MAX_COST_NEAR = 1.15
"""[times] If it costs, bytes included, at most this multiple: disks are shared, and wear out. Chosen."""
HIDDEN_BYTE_PRICE = 0.25
"""[share] Price of a byte whose transfer kernels hide, in its transfer time. Chosen."""
MAX_COST_OF_FASTER = 1.5
"""[times] Making a plan is abandoned when it costs more than the best; or this multiple, if its kernels alone are much
faster. Chosen."""
MUCH_FASTER = 1.03
"""[times] Kernels are much faster than the best plan by this factor. Chosen."""
EQUAL_WITHIN = 5e-4
"""[share] Predicted times that differ by less are equal. Chosen."""
MIN_RECOMPUTING_GAIN = 0.01
"""[share] Part of a plan's cost that recomputing must save by formula. Chosen."""
RECOMPUTING_ROUNDS = 2
"""[rounds] Repetitions of recomputing. Limit: the search's time."""
WORTH_COMPARING = 2.0
"""[times] If a fused plan takes more than this multiple of the unfused kernels alone, the unfused plan is made too; if
the fused kernels alone do, it is made first. Chosen."""
MIN_GAIN_OF_UNFUSED = 0.02
"""[share] An unfused plan that is predicted to save less of the fused plan's time is not chosen. Predictions are less
exact than that, and it takes more memory. Measured: attention of 4 x 8 x 512 x 64, predicted 0.5 % faster, took 5 %
longer."""
SIMILAR_TIME = 1.1
"""[times] If fused kernels take at most this multiple of the time of unfused ones. Chosen."""
TOO_EXPENSIVE = 2.0
"""[times] Unfused kernels are not planned if by formula all their tilings cost this multiple; the formula counts an
operand for each kernel that reads it. Chosen."""
SMALLEST_LIMIT = 1
"""[bytes] Memory for which the variant is planned if that for the given memory does not fit. Follows: no memory is
smaller."""
MAX_ORDERED_NODES = 1000
"""[nodes] Graphs of more are not tried with orders for unlimited memory. Limit: the search's time."""
MAX_DEVICES_COMPARED = 16
"""[devices] Plans for more are chosen by formula. Measured: lowering several of 48,000 ops for 64 devices took 30 s."""
MAX_OPS_OF_VARIANTS = 50_000
"""[ops] A larger fused plan, for more than MAX_DEVICES_COMPARED devices, is not compared with an unfused one whose
kernels take similar time. Limit: the search's time; the variants of a Llama layer differ by 1 %."""
SEGMENTED_CALLS = 20_000
"""[calls] Equal layers are planned once if EinDecomp makes as many calls, one for each statement and site. Limit: the
search's time."""
VALUES_AT_ONCE = 1 << 20
"""[pairs] Pairs of a stored and a loaded box that are compared at once. Limit: the search's memory."""
PROGRAM_SHARES = (0.5, 0.25, 0.75)
"""[share] Parts of the memory that are tried for the first of two programs; more programs have equal parts. Chosen."""
GOOD_ENOUGH = 1.1
"""[times] A plan of several programs is good enough if it moves at most this multiple of the minimum bytes, and takes
at most this multiple of the time of its busiest lane. Chosen."""
REPLANNING_SECONDS = 1.5
"""[seconds] Or as much longer, which is what planning the programs again would take. Chosen."""
SEPARATE_FACTOR = 1 / 1.05
"""[times] Factor on the cost of a plan whose programs have separate parts of the arena: they never wait for each
other's transfers, which may take longer than predicted. Chosen."""
MAX_INPUT_BOXES = 1000
"""[boxes] Boxes kept per input by the I/O lower bound; dropping one only makes the bound smaller. Limit: the bound's
time."""
MAX_BOXES = 64
"""[boxes] The same per other tensor. Limit: the bound's time."""
MAX_SPLITS = 128
"""[boxes] Boxes for which conditions are decided; halving finds an edge of 10^6 points in 20 steps. Limit: the bound's
time."""
WORTH_STORING = 3.0
"""[times] A plan is stored if making it took this multiple of opening and reading its file. Chosen."""
OPEN_SECONDS = 0.005
"""[seconds] Time of opening a stored plan. Chosen."""
PLAN_BANDWIDTH = 100e6
"""[bytes/s] Rate of reading a stored plan. Chosen."""
MAX_UNUSED = 1 / 16
"""[share] A stored plan serves budgets that are larger by at most this. Chosen."""

# Planner: refusals
MAX_RUN_SECONDS = 7 * 86400
"""[seconds] A program that is predicted to take longer is refused, except with --force. Chosen: a week."""
SLOWEST_POINT = 1e-6
"""[seconds] Time of any kernel for one point; if it suffices, no time has to be predicted. Chosen."""
MAX_CORE_RATE = 10**11
"""[operations/s] Rate of any kernel on one core, at most. Chosen."""
MAX_DEVICE_RATE = 10**15
"""[operations/s] The same on an accelerator. Chosen."""
MAX_TILED_NBYTES = MAX_CALLS * LARGEST_WORKING_SET
"""[bytes] A larger intermediate has too many tiles for a plan that makes and reads it tile by tile. Follows: as many
calls as one node may have, of the largest working set."""
MAX_TASKS = 4_000_000
"""[tasks] Tasks of one plan. Limit: the plan's size."""
