"""Numbers that tune how a plan is placed, accounted for and run."""

from __future__ import annotations

# Planner: memory next to the arena
THREAD_NBYTES = 1 << 20
"""[bytes] Resident memory of a worker: its stack, its malloc arena. Measured: on CPython 3.11 with OpenBLAS."""
SEARCH_LEFT_NBYTES = 3 << 20
"""[bytes] Heap that planning leaves behind, without the plan. Measured: on CPython 3.11 with OpenBLAS."""
RUN_NBYTES = SEARCH_LEFT_NBYTES + (2 << 20)
"""[bytes] And code pages first used by the run, progress, the report. Measured: on CPython 3.11 with OpenBLAS."""
TASK_NBYTES = 350
"""[bytes] Plan and state machine at their peak, for each tile task. Chosen."""
OP_NBYTES = 350
"""[bytes] The same for each op; a task has at least one, evictions add more. Chosen."""
READ_NBYTES = 120
"""[bytes] The same for each operand beyond USUAL_READS of a task. Chosen."""
USUAL_READS = 4
"""[operands] Operands of a task that TASK_NBYTES includes. Chosen."""
SLACK_NBYTES = 2 << 20
"""[bytes] Margin of the account of a plan. Chosen."""
MAKING_TASK_NBYTES = 900
"""[bytes] Growing columns and dictionaries while graphs are built, for each task. Measured: with tracemalloc, 855 in
plans of 3,000 to 19,000 ops."""
MAKING_OP_NBYTES = 450
"""[bytes] The same for each op. Measured: with tracemalloc, 300 to 450."""
RUN_OP_NBYTES = 200
"""[bytes] State machine, ready ops, trace and transfers of a run, for each op. Measured: with tracemalloc, 165."""
VIEW_NBYTES = 600
"""[bytes] A cached view of a tile. Measured: with tracemalloc."""
LARGE_PLAN = 2000
"""[ops] From this number of ops on, the heap is trimmed after planning. Chosen."""
FIT_MARGIN = 1 << 18
"""[bytes] Resident memory is known up to some pages per processor, and extents are rounded up. Chosen."""
PLACING_ROUNDS = 3
"""[rounds] Attempts to place a plan, each in fewer bytes because the plan is larger than estimated. Chosen."""
EXTRA_OPS = 0.25
"""[share] Memory is reserved for more ops than tasks by this. Chosen."""
MAX_EXTRA_SHARE = 1 / 128
"""[share] Up to this part of the memory. Chosen."""
MAX_MEASURED = 3
"""[tilings] Tilings that are lowered to find the minimum memory; beyond, a formula estimates it. Limit: the search's
time."""
MAX_CALLS_MEASURED = 50_000
"""[calls] Kernel calls of such a tiling. Limit: the search's time."""
OPS_PER_TASK = 2.5
"""[ops] Ops per task in that formula, since values are spilled and reloaded. Chosen."""
PARTS_ACROSS = 2
"""[tiles] Tiles that a part crosses, each copied by one task: two along one axis in the usual case. Chosen."""
SAFETY_FACTOR = 1.15
"""[times] Factor on sizes of plans that are extrapolated from their first part. Chosen."""
SEARCH_NBYTES = 4 << 20
"""[bytes] Heap that a search leaves behind. Measured: at most 4.2 MiB for 29 programs in three memories each."""
SEARCH_MODULES_NBYTES = 4 << 20
"""[bytes] Modules that only a search loads. Measured: 3.5 to 4 MiB."""
ENCODED_ROW_NBYTES = 160
"""[bytes] Text of an object of a program or plan while it is encoded for a cache. Measured: for 48,000 objects."""
DECODING_FACTOR = 13
"""[times] Memory that decoding a cached program takes, by the bytes of its text. Measured: for 2.7 MB."""
PLANNING_MARGIN_NBYTES = 1 << 20
"""[bytes] Memory other than tables while a plan is made: errors, temporary arrays of the checks. Chosen."""
RESIDENT_NOISE_NBYTES = 2 << 20
"""[bytes] Resident memory varies by at most this between processes, for example by reading cached plans. Chosen."""
STORED_NOISE_NBYTES = 1 << 20
"""[bytes] It varies by this between processes that do the same. Chosen."""
MAX_CACHED_VIEWS = 4096
"""[views] Views of tiles that a run keeps. Limit: the run's memory."""
STREAM_PROCESS_NBYTES = 64 << 20
"""[bytes] Host memory of a run on devices besides pinned memory: threads, the plan, progress, the report. Chosen."""
STAGED_IN = 3
"""[transfers] Transfers of the largest size to a device for which pinned memory has space at a time. Chosen."""
STAGED_OUT = 2
"""[transfers] The same from a device. Chosen."""

# Sites
RECEIVE_WINDOW = 4
"""[values] Values that a site receives at once: enough to keep the stream for them busy. Chosen."""
MIN_CHUNK_SHARE = 1 / 8
"""[share] Points of a chunk that one site alone writes, of those of the largest tile or of the usual chunk, from which
workers write a chunked output themselves; smaller chunks would be too many files. Chosen."""
MAX_CELLS_OF_BOX = 64
"""[cells] Cells of the grid of all cuts of an output, for each of its boxes, up to which the sites of cells are listed.
Limit: the memory of the list."""
MPI_BANDWIDTH = 4.0e9
"""[bytes/s] Rate at which a rank of an MPI job receives a value of another one, unless a link is stated. Measured: 4.0
to 5.0 GB/s for values of 4 MiB, on one machine that other programs loaded."""
MPI_LATENCY = 4e-4
"""[seconds] Latency of the same, most of it pauses between polls. Measured: 0.4 to 0.5 ms for 8 bytes, likewise."""
DASK_BANDWIDTH = 1.0e9
"""[bytes/s] Rate at which a worker of Dask receives a value of another one, unless a link is stated. Measured: 1.0 to
1.4 GB/s for values of 4 MiB, on one machine."""
DASK_LATENCY = 5e-4
"""[seconds] Latency of the same. Measured: 0.4 to 0.5 ms for 8 bytes, on one machine."""
SITE_NBYTES = 8 << 20
"""[bytes] Memory of a worker in addition to its part, arena and values in transit: messages, tasks, Dask. Chosen."""
SITE_ARENA_NBYTES = 16 << 20
"""[bytes] Largest arena of the plans among which a refusal looks for the one that needs the least memory. Chosen."""
SITE_ROUNDS = 6
"""[plans] Plans that are made until one fits the memory of all workers. Limit: the search's time."""
CLUSTER_START_SECONDS = 60
"""[seconds] Workers of a cluster that the command starts are there within this time. Chosen."""
MAX_TENSORS_PLANNED_HERE = 24
"""[arenas] Tensors that together take more arenas of a worker have a plan that a process of its own makes. Chosen: a
product's plan has about 13 times this number to the power of 1.5 tasks, and a process takes 0.3 s to start."""
MAX_NODES_PLANNED_HERE = 300
"""[nodes] The same for programs with more nodes. Chosen."""
SENT_NBYTES = 1 << 20
"""[bytes] A site's part of a plan is sent in batches of this size. Chosen."""
SENT_PARTS = 8
"""[sites] Sites whose parts are encoded and sent at a time. Limit: the memory of the process that begins the run."""
SITE_SHRINK = 0.97
"""[share] Part of the arena that fits by proportion which the next plan gets, since tiles change by steps. Chosen."""
GRAPH_NBYTES = 1 << 20
"""[bytes] Tasks of a Dask array up to this size are sent to workers, whatever the array's size. Chosen."""
GRAPH_SHARE = 1 / 8
"""[share] Tasks above this part of the array's bytes contain its data, which the client sends by tile. Chosen."""
SHARED_TASKS = 3
"""[times] If computing each chunk of a Dask array by itself runs more tasks than this times those of the array, the
chunks have tasks in common, and Dask computes them all first. Chosen."""
JOIN_SECONDS = 30
"""[seconds] A worker that has not begun its task within this time is busy. Chosen."""
ANSWER_SECONDS = 4
"""[seconds] A worker whose event loop does not answer within this time is stopped or has ended. Chosen."""
ANSWER_SECONDS_EACH = 0.02
"""[seconds] Time that a message to all workers may take longer for each of them. Chosen."""
END_SECONDS = 5
"""[seconds] Time for telling the workers that a run has ended; after it, closed connections do. Chosen."""
LOST_SECONDS = 3.0
"""[seconds] If a worker does not reach another, its connection to the coordinator breaks within this time. Chosen."""
SCHEDULER_LOST_SECONDS = 0.3
"""[seconds] If workers end because their scheduler is gone, the client has lost it within this time. Chosen."""
PROGRESS_SECONDS = 0.5
"""[seconds] Time between two reports of a worker's progress. Chosen."""

# Taskgraph
LIBRARY_TERMS = 256
"""[terms] Terms that a library for matrix products adds before it adds their sum to the result, at least. Chosen."""
MAX_PASS_TILES = 1 << 12
"""[tiles] Tiles of an input that several einsums read in one pass, at most. Limit: the planner's memory."""
MAX_ADDITIONS = 64
"""[additions] Tiles or partial states that are added to one state where additions round. Follows: half of it bounds the
error of a level, in units in the last place."""
ROWS_OF_GROUP = 32
"""[rows] Rows of a sum by key for each group, below which a tile has no table entry for each group. Chosen."""
MAX_TILES_BY_KEY = 8
"""[tiles] Tiles that are then added to one state. Chosen."""
MAX_GROUPS_OF_ROW = 4
"""[groups] Groups for each row, above which combining states would take much longer than adding the rows. Chosen."""
MAX_ORDERED_GROUPS = 16
"""[groups] Groups of tiles of a reproducible sum, each summed by one device. Chosen."""
MIN_ORDERED_TERMS = 1 << 10
"""[terms] Terms of such a group for each result, at least, so that combining groups takes little time. Chosen."""
RECENT_TASKS = 32
"""[tasks] A stored tile that a device used at most this number of tasks ago may be moved from there instead of loaded
again. Chosen."""

# Memgraph: placement and eviction
MAX_DEPS_PER_OP = 8
"""[ops] If more precede each op of a group, they precede its first, which precedes the rest: m + n edges. Limit: the
plan's size."""
LOOKAHEAD_SHARE = 0.03
"""[share] Part of the capacity that allocation may take for tasks that are not complete yet. Chosen."""
CLOSE_FIT = 2
"""[times] A free segment fits closely if it is less than this multiple of the request. Chosen."""
MAX_DEPS_PER_SEGMENT = 64
"""[ops] If a segment waits for more, only the first op placed in it waits for all of them. Limit: the plan's size."""
MAX_FREE_RUNS = 4
"""[runs] Runs of free segments that are compared for one request. Limit: the search's time."""
MAX_NEIGHBOURS = 8
"""[values] Neighbours on either side that are considered for eviction together. Limit: the search's time."""
TASKS_BUILT_AT_ONCE = 256
"""[tasks] Tasks between two readings of the resident memory: their ops take less than 1 MiB while they are built.
Limit: the planner's memory."""
ROWS_AT_ONCE = 4096
"""[rows] Ops or tasks whose columns are converted to Python numbers at a time. Limit: the planner's memory."""
EDGES_AT_ONCE = 1 << 13
"""[edges] Dependencies collected before the possible ones are checked. Limit: the planner's memory."""
PAIRS_AT_ONCE = 1 << 12
"""[pairs] Pairs of rows compared at a time, which take about 140 bytes each: less than the planner's margin of 1 MiB.
Limit: the planner's memory."""
MAX_EDGES_PER_OP = 8
"""[edges] Implied dependencies are dropped once there are more per op. Limit: the plan's size."""
MIN_EDGES_TO_REDUCE = 1 << 17
"""[edges] And more in total. Limit: the search's time."""
READS_AT_ONCE = 1 << 13
"""[reads] Operands of tasks that are added up at a time. Limit: the planner's memory."""
EVICTION_CANDIDATES = 6
"""[values] Values, furthest next use first, of which the cheapest is evicted. Limit: the search's time."""
WRITE_WEIGHT = 2.5
"""[times] Weight of an evicted byte that has to be written first, compared with one that is only read again. Chosen."""
PARTIAL_WEIGHT = 1e6
"""[times] The same for a state that is not complete: the next addition would read it back. Chosen."""
KEEP_WEIGHT = 1e9
"""[times] The same for tensors with the hint `keep`: evicted only if nothing else can be. Chosen."""
MAX_SPARE_PRICE = 1.0
"""[times] A value at or above this price is evicted only if nothing else can be. Chosen."""
MIN_CLEARED = 64
"""[bits] Bits are cleared from the sets once as many can be reused. Chosen."""
MAX_EXACTLY_REDUCED = 8192
"""[ops] Dependencies of smaller graphs are reduced exactly. Limit: the search's time."""
MAX_IMPLIED_DISTANCE = 1024
"""[ops] In larger ones a dependency further back is kept even if others imply it, which bounds the bits of a set; few
reach that far. Limit: the planner's memory."""
REDUCED_EDGES_AT_ONCE = 1 << 13
"""[edges] Dependencies that are compared at a time. Limit: the planner's memory."""
MAX_RECOMPUTED_DEPTH = 4
"""[values] Longest chain of freed values that are recomputed as operands of one another. Limit: the search's time."""
HOST_SPANS = 4096
"""[spans] Spans of the serial order; the use of host memory is counted per span. Limit: the planner's memory."""

# Runtime: who runs a plan
INLINE_OPS = 64
"""[ops] Ops of a plan that one call runs inline, at most. Chosen."""
INLINE_ARENA_NBYTES = 1 << 20
"""[bytes] Its arena, which stays allocated between runs. Chosen."""
INLINE_SECONDS = 2e-3
"""[seconds] Its planned time on one worker. Chosen."""
PREPARED_OPS = 512
"""[ops] Above, preparing ops gains nothing: their own time exceeds the fixed cost of a run. Chosen."""
STEP_PRODUCED_NBYTES = 16 << 20
"""[bytes] A plan for repeated steps may produce this much in the arena to run inline. Chosen."""
HANDOVER_SECONDS = 50e-6
"""[seconds] Time to hand an op to another thread and to learn of its end. Chosen."""
DIVIDED_FLOPS = 4e6
"""[operations] A product up to which waking BLAS's threads takes as long as they save. Chosen."""
PACKED_FLOPS = 1e7
"""[operations] A product of an inline run up to which machine code computes it in one thread. Measured: with f32 and
AVX-512 it takes 0.6 to 0.95 of the time of BLAS in one thread."""
SEPARATE_NBYTES = 16 << 20
"""[bytes] An arena in which no two values share bytes, at most. Chosen."""
CALL_IN_PLACE_NBYTES = 1 << 15
"""[bytes] Arrays from this size are used in place by inline plans; smaller ones are copied faster than looked up.
Chosen."""
STEP_IN_PLACE_NBYTES = 1 << 16
"""[bytes] The same for a step, which also checks whether its arrays are those of the step before. Chosen."""
BLOCKED_COPY_NBYTES = 1 << 20
"""[bytes] Up to this size a plain copy is faster than choosing blocks. Chosen."""
PREPARED_OP_NBYTES = 4 << 10
"""[bytes] Memory of one prepared op. Chosen."""
KEPT_STAGES_NBYTES = 8 << 20
"""[bytes] Values and prepared runs of a program in stages that stay for its next call, at most. Chosen."""
SHORT_KERNEL_SECONDS = 100e-6
"""[seconds] Planned time up to which a kernel counts as short. Chosen."""
SHORT_TRANSFER_SECONDS = 400e-6
"""[seconds] The same for a transfer, which then spends most of its time in Python and system calls, which do not run in
parallel. Chosen."""
DISK_WAIT_SECONDS = 1e-3
"""[seconds] Mean duration of transfers of one kind above which they wait for the disk and count as long, whatever was
planned. Chosen."""
CPU_BOUND_SHARE = 0.5
"""[share] Part of its duration for which a transfer uses a core, above which it is CPU-bound. Chosen."""
DURATION_WEIGHT = 1 / 32
"""[share] Weight of the newest sample in the moving average of durations. Chosen."""
CPU_WEIGHT = 1 / 8
"""[share] Weight of the newest sample in the moving average of the part of a core used. Chosen."""
CHUNKS_PER_WORKER = 32
"""[chunks] Chunks of a kernel for each worker, so that workers end nearly together. Chosen."""
MIN_CHUNK_SECONDS = 50e-6
"""[seconds] Planned time of a chunk, at least. Chosen."""
POLL_SECONDS = 20e-6
"""[seconds] Time between checks whether other threads have finished their chunks. Chosen."""
TICK_SECONDS = 0.1
"""[seconds] Time between checks of the stop event, and between progress reports. Chosen."""
MIN_CHECK_SECONDS = 1e-3
"""[seconds] Duration of a run from which it pays to read the machine's load. Chosen."""
LOOK_SECONDS = 10e-3
"""[seconds] Time between two readings of the machine's load, each of which takes about 50 microseconds. Chosen."""
REPEATED_SECONDS = 5e-3
"""[seconds] Time of the iterations of a loop that one call of a command list runs: an interrupt waits for its end.
Chosen."""
UNDISTURBED_SHARE = 0.9
"""[share] Part of a run's wall time that its thread uses a core, at least, if no other process competes for cores.
Chosen."""
WAKE_SECONDS = 1.0e-4
"""[seconds] Time that an op adds to its kernel, for waking a thread, if no transfer hides it. Chosen."""
SEARCHED_ELEMENTS = 8192
"""[elements] Elements that are searched at once for a NaN or an infinity. Chosen."""
MAX_SEARCHED_ELEMENTS = 1 << 26
"""[elements] Size of an input up to which it is searched for the cause of an event. Limit: some tenths of a second."""
MAX_CAUSES = 3
"""[elements] Elements of inputs that a warning names. Limit: the length of a line."""

# Runtime: machine code
WORTH_LOADING = 0.001
"""[seconds] Planned time of all kernels from which compiled code is loaded from disk. Measured: loading takes 0.1 ms
per kernel."""
BLAS_SAVED_SHARE = 0.2
"""[share] Part of a product's planned time that machine code saves beside BLAS. Measured: nothing for large square
products, half and more for thin and transposed ones."""
MIN_SAVED_SHARE = 0.5
"""[share] Part of a kernel's planned time that machine code saves beside NumPy, at least: NumPy reads memory more often
than the model assumes. Measured: column sums of 4096 x 4096 in 1.6 ms instead of 4.2."""
EXECUTOR_USES = 20
"""[times] Factor on the time that the command-list executor saves: all programs on the machine use the same code.
Chosen."""
PARALLEL_SAVED_SHARE = 0.1
"""[share] Part of the kernels' time that dynamic division among threads saves, by shorter waits for the slowest.
Chosen."""
START_SECONDS = 0.4
"""[seconds] Start of the compiler's process, once per machine. Chosen."""
COMPILE_SECONDS = 0.03
"""[seconds] Compilation of one kernel, once per machine. Chosen."""
CALL_SECONDS = 3e-6
"""[seconds] One kernel call from Python. Chosen."""
LOAD_SECONDS = 2e-4
"""[seconds] Loading of a function of machine code. Chosen."""
