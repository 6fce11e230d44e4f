"""Parallel for: threads take calls from a shared list until none is left, without returning to Python.

Dynamic assignment balances the load: with equal parts assigned beforehand, threads would wait for the slowest of them,
and for the one that wakes last.
"""

from __future__ import annotations

from dataclasses import dataclass

# Words of a call: the function, its argument, the word of the argument that takes the address of the thread's scratch
# (-1: none), and the raised floating-point flags.
CALL = ("function", "argument", "scratch", "status")
# Words shared by the threads: the next call, the number of calls, the number completed, the address of the calls, the
# raised flags of all calls, and the number of the run.
SHARED = ("next", "count", "done", "calls", "seen", "run")
_PATIENCE = 2000  # times that a thread checks for calls still running, each after a pause of some 20 ns
_FLAGS = 0x3F  # of the unit's status word


@dataclass(frozen=True, slots=True)
class ParallelForCode:
    """The code of the loop; all its instances are equal.

    Its argument is an array of i64: the address of the shared words, and that of the thread's scratch. It returns when
    every call is complete, or after a short wait for other threads' calls.
    """


def parallel_for_ir(name: str) -> str:
    """Return its LLVM IR."""
    return f"""
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse2.pause()
define void @{name}(ptr %args) #0 {{
entry:
  %status = alloca i32
  %nshared = load i64, ptr %args
  %shared = inttoptr i64 %nshared to ptr
  %proom = getelementptr i64, ptr %args, i64 1
  %room = load i64, ptr %proom
  %pcount = getelementptr i64, ptr %shared, i64 1
  %count = load i64, ptr %pcount
  %pdone = getelementptr i64, ptr %shared, i64 2
  %pseen = getelementptr i64, ptr %shared, i64 4
  %pcalls = getelementptr i64, ptr %shared, i64 3
  %ncalls = load i64, ptr %pcalls
  %calls = inttoptr i64 %ncalls to ptr
  %prun = getelementptr i64, ptr %shared, i64 5
  %croom = inttoptr i64 %room to ptr
  br label %head
head:
  %mine = phi i64 [ -1, %entry ], [ %known, %clear ]
  %i = atomicrmw add ptr %shared, i64 1 seq_cst
  %going = icmp slt i64 %i, %count
  br i1 %going, label %inside, label %wait
inside:
  %at = mul i64 %i, {len(CALL)}
  %call = getelementptr i64, ptr %calls, i64 %at
  %nfunction = load i64, ptr %call
  %function = inttoptr i64 %nfunction to ptr
  %pargument = getelementptr i64, ptr %call, i64 1
  %nargument = load i64, ptr %pargument
  %argument = inttoptr i64 %nargument to ptr
  %pwhere = getelementptr i64, ptr %call, i64 2
  %where = load i64, ptr %pwhere
  %takes = icmp sge i64 %where, 0
  br i1 %takes, label %give, label %clear
give:
  %pmine = getelementptr i64, ptr %argument, i64 %where
  store i64 %room, ptr %pmine
  %run = load atomic i64, ptr %prun seq_cst, align 8
  %same = icmp eq i64 %run, %mine
  br i1 %same, label %clear, label %anew
anew:
  store i64 0, ptr %croom
  br label %clear
clear:
  %known = phi i64 [ %mine, %inside ], [ %run, %give ], [ %run, %anew ]
  call void @llvm.x86.sse.stmxcsr(ptr %status)
  %before = load i32, ptr %status
  %cleared = and i32 %before, {~_FLAGS}
  store i32 %cleared, ptr %status
  call void @llvm.x86.sse.ldmxcsr(ptr %status)
  call void %function(ptr %argument)
  call void @llvm.x86.sse.stmxcsr(ptr %status)
  %after = load i32, ptr %status
  %flags = and i32 %after, {_FLAGS}
  %wide = zext i32 %flags to i64
  %pstatus = getelementptr i64, ptr %call, i64 3
  store i64 %wide, ptr %pstatus
  %seen_before = atomicrmw or ptr %pseen, i64 %wide seq_cst
  %before_me = atomicrmw add ptr %pdone, i64 1 seq_cst
  br label %head
wait:
  %turn = phi i64 [ 0, %head ], [ %following, %pause ]
  %done = load atomic i64, ptr %pdone seq_cst, align 8
  %others = icmp slt i64 %done, %count
  %patient = icmp slt i64 %turn, {_PATIENCE}
  %again = and i1 %others, %patient
  br i1 %again, label %pause, label %end
pause:
  call void @llvm.x86.sse2.pause()
  %following = add i64 %turn, 1
  br label %wait
end:
  ret void
}}
"""
