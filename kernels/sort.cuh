// A stable radix sort of rows by the number of their group, four bits per pass. Each thread sorts consecutive rows of
// its own. There are no atomic operations, so the order depends on the rows alone.
//
// A pass has three launches: count_digits counts each digit in each thread's rows; scan_counts turns the counts,
// ordered by digit and then by thread, into positions (an exclusive prefix sum); place_rows moves the rows to these
// positions.
#pragma once
#include "fold.cuh"

namespace ein {

enum { DIGIT_BITS = 4, DIGITS = 16 };

// Counts the rows of each thread with each digit: counts[digit * threads + thread].
EIN void count_digits(const unsigned* keys, unsigned* counts, i64 n, i64 share, i64 threads, int shift) {
  const i64 thread = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  unsigned own[DIGITS];
  for (int d = 0; d < DIGITS; d++) own[d] = 0;
  for (i64 i = thread * share; i < n && i < (thread + 1) * share; i++) own[keys[i] >> shift & (DIGITS - 1)]++;
  for (int d = 0; d < DIGITS; d++) counts[d * threads + thread] = own[d];
}

// Replaces each count by the sum of the counts before it. Runs as one block of 256 threads.
EIN void scan_counts(unsigned* counts, i64 n) {
  __shared__ unsigned sums[256];
  const i64 share = (n + 255) / 256, begin = threadIdx.x * share;
  unsigned total = 0;
  for (i64 i = begin; i < n && i < begin + share; i++) total += counts[i];
  sums[threadIdx.x] = total;
  __syncthreads();
  for (unsigned step = 1; step < 256; step *= 2) {
    const unsigned more = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += more;
    __syncthreads();
  }
  unsigned before = sums[threadIdx.x] - total;
  for (i64 i = begin; i < n && i < begin + share; i++) {
    const unsigned own = counts[i];
    counts[i] = before;
    before += own;
  }
}

// Moves each key and row to its position in the order of this pass.
EIN void place_rows(const unsigned* keys, const unsigned* rows, unsigned* to_keys, unsigned* to_rows, unsigned* counts,
                    i64 n, i64 share, i64 threads, int shift) {
  const i64 thread = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (thread >= threads) return;
  unsigned next[DIGITS];
  for (int d = 0; d < DIGITS; d++) next[d] = counts[d * threads + thread];
  for (i64 i = thread * share; i < n && i < (thread + 1) * share; i++) {
    const unsigned at = next[keys[i] >> shift & (DIGITS - 1)]++;
    to_keys[at] = keys[i];
    to_rows[at] = rows[i];
  }
}

// Returns the position of the first of n sorted keys that is not less than `key`.
EIN i64 first_not_less(const unsigned* keys, i64 n, i64 key) {
  i64 lo = 0, hi = n;
  while (lo < hi) {
    const i64 middle = (lo + hi) / 2;
    if ((i64)keys[middle] < key) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

}  // namespace ein
