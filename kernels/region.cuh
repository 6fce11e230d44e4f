// What streaming regions need beside the folds: sums that follow a maximum, and news of what was read.
#pragma once
#include "fold.cuh"

namespace ein {

// A sum whose terms hold exp(coefficient * m) as a factor, when m moves from a to b; of an infinite m it has no term.
template <class T, class M> EIN void rescale(T& total, M a, M b, T coefficient) {
  if (a == b) return;
  const T factor = infinite(a) ? (T)0 : exp_(coefficient * (T)(b - a));
  total = factor == 0 ? (T)0 : total * factor;
}

// A sum of squares about a mean of `count` values, when the mean's sum and count move.
template <class T, class M> EIN void shift(T& total, M before, i64 count, M after, i64 now, T coefficient) {
  const M gap = after / (M)(now > 0 ? now : 1) - before / (M)(count > 0 ? count : 1);
  total += coefficient * (T)count * (T)(gap * gap);
}

// A sum and its rounding errors, which are added up separately. Source: Knuth, The Art of Computer Programming 2, 4.2.2.
template <class T> EIN void add_exactly(T& total, T& error, T x) {
  Quiet f;
  const T made = add(f, total, x), part = sub(f, made, total);
  if (finite_(made)) error = add(f, error, add(f, sub(f, total, sub(f, made, part)), sub(f, x, part)));
  total = made;
}

// The sum, corrected at the end.
template <class T> EIN void add_error(T& total, T error) {
  Quiet f;
  total = add(f, total, error);
}

// A number that is read; whether any was NaN (1) or infinite (2).
template <class T> EIN T look(unsigned& seen, T x) {
  if (!finite_(x)) seen |= nan(x) ? 1 : 2;
  return x;
}

// What a result tells where no NaN, or nothing infinite, was read.
template <class F, class T> EIN void tell(F& f, T x, unsigned read) {
  if (!finite_(x)) f.note(nan(x) ? (read ? 0 : INVALID) : read ? 0 : OVERFLOW_);
}

}  // namespace ein
