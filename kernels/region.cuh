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
