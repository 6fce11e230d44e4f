// CUDA's execution model for one host thread: a block's threads are fibers that switch at __syncthreads, in rising or
// falling order, so that a result which hangs on the order of threads between two barriers differs between the two.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __syncthreads() emulate::barrier()

struct dim3_ { unsigned x, y, z; };
static dim3_ threadIdx, blockIdx, blockDim, gridDim;
static unsigned char* emulate_dynamic;

template <class T> inline T atomicMin(T* at, T x) { T old = *at; if (x < old) *at = x; return old; }
template <class T> inline T atomicOr(T* at, T x) { T old = *at; *at |= x; return old; }
template <class T> inline T atomicAdd(T* at, T x) { T old = *at; *at += x; return old; }

namespace emulate {
enum { STACK = 256 << 10, MOST = 1024 };
static ucontext_t home, fibers[MOST];
static bool done[MOST];
static int current;
static char* stacks;
static void (*body)();

inline void barrier() { swapcontext(&fibers[current], &home); }
inline void begin() {
  body();
  done[current] = true;
  swapcontext(&fibers[current], &home);
}
inline void stand(int thread) {
  current = thread;
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
}
inline void block(int threads, bool falling) {
  for (int t = 0; t < threads; t++) {
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = stacks + (size_t)t * STACK;
    fibers[t].uc_stack.ss_size = STACK;
    fibers[t].uc_link = &home;
    makecontext(&fibers[t], begin, 0);
    done[t] = false;
  }
  for (int left = threads; left;) {
    int waiting = 0;
    for (int n = 0; n < threads; n++) {
      int t = falling ? threads - 1 - n : n;
      if (done[t]) continue;
      stand(t);
      swapcontext(&home, &fibers[t]);
      waiting += !done[t];
    }
    if (waiting && waiting != left) abort();  // some threads wait at a barrier that others never reach
    left = waiting;
  }
}
inline void launch(const unsigned* grid, const unsigned* threads, size_t shared, bool falling, void (*run)()) {
  if (!stacks) stacks = (char*)mmap(0, (size_t)STACK * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {threads[0], threads[1], threads[2]};
  body = run;
  emulate_dynamic = (unsigned char*)aligned_alloc(128, (shared + 255) / 128 * 128);
  size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
  for (size_t n = 0; n < blocks; n++) {
    size_t b = falling ? blocks - 1 - n : n;
    blockIdx = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / ((size_t)grid[0] * grid[1]))};
    memset(emulate_dynamic, 0xA5, shared);
    block(threads[0] * threads[1] * threads[2], falling);
  }
  free(emulate_dynamic);
}
}  // namespace emulate
