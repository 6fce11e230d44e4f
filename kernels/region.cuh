// Functions for region and product kernels, in addition to fold.cuh: corrections of states that depend on another
// state, and floating-point flags from results.
//
// These kernels do not check each operation for NaN and infinity, which would be slow. They record whether a value read
// was NaN or infinite, and check only the results: a NaN or infinity is reported if no special value was read.
#pragma once
#include "fold.cuh"

namespace ein {

// Corrects a sum whose terms have the factor exp(coefficient * m) when m changes from a to b (online softmax). If a is
// infinite, the sum has no terms yet.
template <class T, class M> EIN void rescale(T& total, M a, M b, T coefficient) {
  if (a == b) return;
  const T factor = infinite(a) ? (T)0 : exp_(coefficient * (T)(b - a));
  total = factor == 0 ? (T)0 : total * factor;
}

// Corrects a sum of squared deviations from a mean when the mean's sum and count change from (before, count) to (after,
// new_count) (Chan, Golub and LeVeque, 1979).
template <class T, class M> EIN void shift(T& total, M before, i64 count, M after, i64 new_count, T coefficient) {
  const M gap = after / (M)(new_count > 0 ? new_count : 1) - before / (M)(count > 0 ? count : 1);
  total += coefficient * (T)count * (T)(gap * gap);
}

// Adds x to a sum, and the rounding error of this addition to `error` (compensated summation). Source: Knuth, The
// Art of Computer Programming 2, 4.2.2.
template <class T> EIN void add_exactly(T& total, T& error, T x) {
  Quiet f;
  const T made = add(f, total, x), part = sub(f, made, total);
  if (finite_(made)) error = add(f, error, add(f, sub(f, total, sub(f, made, part)), sub(f, x, part)));
  total = made;
}

// Adds the accumulated rounding errors to a sum.
template <class T> EIN void add_error(T& total, T error) {
  Quiet f;
  total = add(f, total, error);
}

// Returns a value that was read, and records in `seen` whether it is NaN (1) or infinite (2).
template <class T> EIN T record_special(unsigned& seen, T x) {
  if (!finite_(x)) seen |= nan(x) ? 1 : 2;
  return x;
}

// Fills a panel of an operand in the device's memory: panel[k][i] is the element at side[i] + fold[k], converted; zero
// for k from `depth` on. AlongFold: consecutive folded points are consecutive in memory, else points of the side. `quads`:
// each four of them can be read at once.
template <class T, int Side, int Depth, bool AlongFold, class P, int Pitch> EIN
void stage(P (*panel)[Pitch], const char* base, const i64* side, const i64* fold, int depth, bool quads, unsigned& read) {
  Quiet f;
  const int per_row = AlongFold ? Depth : Side;
  if (quads) {
    #pragma unroll
    for (int e = threadIdx.x; e < Side * Depth / 4; e += 256) {
      const int slow = e / (per_row / 4), fast = e % (per_row / 4) * 4;
      const int i = AlongFold ? slow : fast, k = AlongFold ? fast : slow;
      Pack<T, 4> found = {};
      if (k < depth) found = load<Pack<T, 4>>(base, side[i] + fold[k]);
      Pack<P, 4> made;
      #pragma unroll
      for (int n = 0; n < 4; n++) made.at[n] = to<P>(f, record_special(read, found.at[n]));
      if (AlongFold) {
        #pragma unroll
        for (int n = 0; n < 4; n++) panel[k + n][i] = made.at[n];
      } else *(Pack<P, 4>*)&panel[k][i] = made;
    }
    return;
  }
  #pragma unroll
  for (int e = threadIdx.x; e < Side * Depth; e += 256) {
    const int i = AlongFold ? e / per_row : e % per_row, k = AlongFold ? e % per_row : e / per_row;
    panel[k][i] = k < depth ? to<P>(f, record_special(read, load<T>(base, side[i] + fold[k]))) : P();
  }
}

// Fills a panel of a value of the block's rows and columns: panel[k][i] is values[i * pitch + k]; zero outside of `rows`
// and `depth`.
template <int Side, int Depth, class P, int Pitch, class T> EIN
void stage_values(P (*panel)[Pitch], const T* values, int pitch, int rows, int depth) {
  Quiet f;
  const bool quads = pitch % 4 == 0;
  #pragma unroll
  for (int e = threadIdx.x; e < Side * Depth / 4; e += 256) {
    const int i = e / (Depth / 4), k = e % (Depth / 4) * 4;
    Pack<T, 4> found = {};
    if (i < rows) {
      if (quads && k + 4 <= depth) found = *(const Pack<T, 4>*)(values + i * pitch + k);
      else for (int n = 0; n < 4; n++) {
        if (k + n < depth) found.at[n] = values[i * pitch + k + n];
      }
    }
    #pragma unroll
    for (int n = 0; n < 4; n++) panel[k + n][i] = to<P>(f, found.at[n]);
  }
}

// Reports a result that is NaN or infinite, if no NaN or infinite value was read.
template <class F, class T> EIN void report_special(F& f, T x, unsigned read) {
  if (!finite_(x)) f.note(nan(x) ? (read ? 0 : INVALID) : read ? 0 : OVERFLOW_);
}

}  // namespace ein
