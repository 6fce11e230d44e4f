// Aggregations as states in registers. Every state type has clear() (the neutral state), fold(f, value, place) and
// combine(f, other). S is the type of a state's fields in registers; `a` and `b` are its components, which can have
// other types in memory. f collects floating-point flags; `place` is the flat index of a value, for argmin and
// argmax.
#pragma once
#include "scalar.cuh"

// Declares the shared memory whose size a launch determines.
#ifdef __CUDACC__
#define EIN_DYNAMIC(name) extern __shared__ __align__(16) unsigned char name[];
#endif

namespace ein {

// The lowest and the highest value of a type, the neutral elements of max and min.
template <class T> EIN T lowest() {
  if constexpr (is_float<T>::value) return -infinity_(T());
  else if constexpr (is_cplx<T>::value) return {-infinity_(T().re), 0};
  else if constexpr (same<T, bool>::value) return false;
  else if constexpr (is_signed<T>::value) return (T)((u64)1 << (8 * sizeof(T) - 1));
  else return 0;
}
template <class T> EIN T highest() {
  if constexpr (is_float<T>::value) return infinity_(T());
  else if constexpr (is_cplx<T>::value) return {infinity_(T().re), 0};
  else if constexpr (same<T, bool>::value) return true;
  else if constexpr (is_signed<T>::value) return (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1);
  else return (T)~(u64)0;
}

template <class S> struct Sum {
  S a;
  EIN void clear() { a = S(); }
  template <class F> EIN void fold(F& f, S x, i64) { a = add(f, a, x); }
  template <class F> EIN void combine(F& f, const Sum& o) { a = add(f, a, o.a); }
};
template <class S> struct Prod {
  S a;
  EIN void clear() { a = one<S>(); }
  template <class F> EIN void fold(F& f, S x, i64) { a = mul(f, a, x); }
  template <class F> EIN void combine(F& f, const Prod& o) { a = mul(f, a, o.a); }
};
template <class S> struct Max {
  S a;
  EIN void clear() { a = lowest<S>(); }
  template <class F> EIN void fold(F& f, S x, i64) { a = max(f, a, x); }
  template <class F> EIN void combine(F& f, const Max& o) { a = max(f, a, o.a); }
};
template <class S> struct Min {
  S a;
  EIN void clear() { a = highest<S>(); }
  template <class F> EIN void fold(F& f, S x, i64) { a = min(f, a, x); }
  template <class F> EIN void combine(F& f, const Min& o) { a = min(f, a, o.a); }
};
struct Any {
  bool a;
  EIN void clear() { a = false; }
  template <class F> EIN void fold(F&, bool x, i64) { a = a || x; }
  template <class F> EIN void combine(F&, const Any& o) { a = a || o.a; }
};
struct All {
  bool a;
  EIN void clear() { a = true; }
  template <class F> EIN void fold(F&, bool x, i64) { a = a && x; }
  template <class F> EIN void combine(F&, const All& o) { a = a && o.a; }
};
// A sum and the number of its values, for a mean whose count depends on data.
template <class S> struct Counted {
  S a;
  i64 b;
  EIN void clear() { a = S(), b = 0; }
  template <class F> EIN void fold(F& f, S x, i64) { a = add(f, a, x), b += 1; }
  template <class F> EIN void combine(F& f, const Counted& o) { a = add(f, a, o.a), b += o.b; }
};
// exp(x - top), and 1 if both are the same infinity.
template <class S> EIN S scaled(S x, S top) { return x == top ? (S)1 : exp_(x - top); }
// a is the maximum so far, b the sum of exp(x - a) (Milakov and Gimelshein, 2018).
template <class S> struct LogSumExp {
  S a, b;
  EIN void clear() { a = lowest<S>(), b = 0; }
  template <class F> EIN void fold(F& f, S x, i64) {
    S top = max(f, a, x);
    b = b * scaled(a, top) + scaled(x, top);
    a = top;
  }
  template <class F> EIN void combine(F& f, const LogSumExp& o) {
    S top = max(f, a, o.a);
    b = (b == 0 ? b : b * scaled(a, top)) + (o.b == 0 ? o.b : o.b * scaled(o.a, top));
    a = top;
  }
};
// argmax and argmin: the best value a and its place b. NaN wins over all numbers, the lowest place wins ties; b is -1
// if there is no value yet.
template <class S, bool Greatest> struct Best {
  S a;
  i64 b;
  EIN void clear() {
    a = Greatest ? lowest<S>() : highest<S>();
    b = -1;
  }
  EIN void take(S x, i64 place) {
    if (place < 0) return;
    const bool old_nan = nan(a), new_nan = nan(x);
    const bool better = new_nan ? !old_nan : !old_nan && (Greatest ? before(a, x) : before(x, a));
    const bool equal = new_nan ? old_nan : !old_nan && !before(a, x) && !before(x, a);
    if (b < 0 || better || (equal && place < b)) a = x, b = place;
  }
  template <class F> EIN void fold(F&, S x, i64 place) { take(x, place); }
  template <class F> EIN void combine(F&, const Best& o) { take(o.a, o.b); }
};
// The one value that a key selects, if any.
template <class S> struct Pick {
  S a;
  bool hit;
  EIN void clear() { a = S(), hit = false; }
  template <class F> EIN void fold(F&, S x, i64) { a = x, hit = true; }
  template <class F> EIN void combine(F&, const Pick& o) {
    if (o.hit) a = o.a, hit = true;
  }
};

// Folds values in their order.
template <class S, class T, class F, int N> EIN void fold_values(F& f, S& state, const T (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) state.fold(f, x[i], 0);
}
// An infinity or NaN stays in a sum. So flags of single additions are computed only if the last one is not finite.
template <class T, class F, int N> EIN void fold_values(F& f, Sum<T>& state, const T (&x)[N]) {
  Quiet quiet;
  Sum<T> all = state;
#pragma unroll
  for (int i = 0; i < N; i++) all.fold(quiet, x[i], 0);
  if (finite_(all.a)) {
    state = all;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) state.fold(f, x[i], 0);
}

// Combines the states of `count` threads (a power of two) by a tree in shared memory, always in the same order. Each of
// them gets the result. `mine` is the number of the calling thread among them, `thread` its number in the block, and
// `step` the distance of their numbers in the block.
template <class S, class F> EIN
void combine_threads(F& f, S& state, unsigned char* shared, int thread, int step, int mine, int count) {
  S* all = (S*)shared;
  if (count == 1) return;
  all[thread] = state;
  __syncthreads();
  for (int half = count / 2; half; half /= 2) {
    if (mine < half) {
      S own = all[thread];
      own.combine(f, all[thread + half * step]);
      all[thread] = own;
    }
    __syncthreads();
  }
  state = all[thread - mine * step];
  __syncthreads();
}

}  // namespace ein
