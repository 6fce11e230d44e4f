// The language's element types and scalar operators, with the results of NumPy. It includes no other header, so that
// any C++ compiler accepts it. Code under __CUDACC__ uses instructions of the GPU; #else has the same functions in
// plain C++, for tests on a CPU.
#pragma once

namespace ein {

typedef long long i64;
typedef unsigned long long u64;

enum { INVALID = 1, OVERFLOW_ = 2, DIVIDE = 4 };

#ifdef __CUDACC__
#define EIN __device__ __forceinline__
#else
#define EIN inline
#endif

template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };

template <class To, class From> EIN To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  To y;
  memcpy(&y, &x, sizeof(To));
  return y;
}

// --- types ---------------------------------------------------------------------------------------------------------

struct half_t { unsigned short raw; };
struct bfloat_t { unsigned short raw; };

template <class T> struct alignas(2 * sizeof(T)) cplx {
  T re, im;
};

template <class T> struct is_cplx { static constexpr bool value = false; };
template <class T> struct is_cplx<cplx<T>> { static constexpr bool value = true; };
template <class T> struct is_float { static constexpr bool value = same<T, float>::value || same<T, double>::value; };
template <class T> struct is_narrow { static constexpr bool value = same<T, half_t>::value || same<T, bfloat_t>::value; };
template <class T> struct is_int {
  static constexpr bool value = !is_float<T>::value && !is_narrow<T>::value && !is_cplx<T>::value && !same<T, bool>::value;
};
template <class T> struct is_signed { static constexpr bool value = T(-1) < T(0); };

template <class T> struct unsigned_of { typedef T type; };
template <> struct unsigned_of<signed char> { typedef unsigned char type; };
template <> struct unsigned_of<short> { typedef unsigned short type; };
template <> struct unsigned_of<int> { typedef unsigned type; };
template <> struct unsigned_of<i64> { typedef u64 type; };

EIN float infinity_(float) { return bits<float>(0x7f800000u); }
EIN double infinity_(double) { return bits<double>(0x7ff0000000000000ull); }
EIN bool nan(float x) { return x != x; }
EIN bool nan(double x) { return x != x; }
EIN bool finite_(float x) { return (bits<unsigned>(x) & 0x7f800000u) != 0x7f800000u; }
EIN bool finite_(double x) { return (bits<u64>(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }
template <class T> EIN bool nan(cplx<T> x) { return nan(x.re) || nan(x.im); }
template <class T> EIN bool finite_(cplx<T> x) { return finite_(x.re) && finite_(x.im); }
template <class T> EIN bool nan(T) { return false; }
template <class T> EIN bool finite_(T) { return true; }
template <class T> EIN bool is_nonzero(T x) { return x != T(0); }
template <class T> EIN bool is_nonzero(cplx<T> x) { return x.re != 0 || x.im != 0; }
template <class T> EIN bool infinite(T x) { return !finite_(x) && !nan(x); }

// --- floating-point flags ------------------------------------------------------------------------------------------

// GPUs have no status register, so operators check their results. A NaN from operands without NaN is INVALID; an
// infinity from finite operands is OVERFLOW_, or DIVIDE if the divisor is zero. Operators take the collector as first
// argument.
struct Watch {
  unsigned seen;
  EIN void note(unsigned b) { seen |= b; }
  template <class R, class A> EIN void check(R r, A a) {
    if (!finite_(r)) note(nan(r) ? (nan(a) ? 0 : INVALID) : finite_(a) ? OVERFLOW_ : 0);
  }
  template <class R, class A, class B> EIN void check(R r, A a, B b) {
    if (!finite_(r)) note(nan(r) ? (nan(a) || nan(b) ? 0 : INVALID) : finite_(a) && finite_(b) ? OVERFLOW_ : 0);
  }
};

// Collects nothing.
struct Quiet {
  EIN void note(unsigned) {}
  template <class R, class A> EIN void check(R, A) {}
  template <class R, class A, class B> EIN void check(R, A, B) {}
};

// --- conversions ---------------------------------------------------------------------------------------------------

#ifdef __CUDACC__
EIN float widen(half_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.raw));
  return y;
}
EIN half_t half(float x) {
  half_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.raw) : "f"(x));
  return y;
}
EIN half_t half(double x) {
  half_t y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.raw) : "d"(x));
  return y;
}
#else
inline float widen(half_t x) {
  unsigned sign = (x.raw & 0x8000u) << 16, exponent = (x.raw >> 10) & 31, mantissa = x.raw & 1023;
  if (exponent == 31) return bits<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float y = mantissa * (1.0f / 16777216.0f);
  return sign ? -y : y;
}
inline half_t half(double x) {  // rounds once
  half_t y;
  unsigned short sign = bits<u64>(x) >> 63 ? 0x8000 : 0;
  double a = x < 0 ? -x : x;
  if (x != x) y.raw = 0x7e00;
  else if (a >= 65520.0) y.raw = sign | 0x7c00;
  else {
    int shift = 0;
    double step = 1.0 / 16777216.0;
    while (a >= 2048 * step) step *= 2, shift++;
    double q = rint(a / step);
    unsigned n = (unsigned)q;
    y.raw = sign | (unsigned short)(shift ? n + shift * 1024 : n);
  }
  return y;
}
inline half_t half(float x) { return half((double)x); }
#endif

EIN float widen(bfloat_t x) { return bits<float>((unsigned)x.raw << 16); }
EIN bfloat_t bfloat(float x) {
  bfloat_t y;
  unsigned b = bits<unsigned>(x);
  y.raw = nan(x) ? (unsigned short)((b >> 16) | 64) : (unsigned short)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
  return y;
}
EIN bool nan(half_t x) { return nan(widen(x)); }
EIN bool nan(bfloat_t x) { return nan(widen(x)); }
EIN bool finite_(half_t x) { return finite_(widen(x)); }
EIN bool finite_(bfloat_t x) { return finite_(widen(x)); }

// Converts floats to integers as x86 does: a value out of range becomes the lowest number of 32 or 64 bits, truncated
// to the target's size.
template <class I, class F, class X> EIN I to_integer(F& f, X x) {
  if (sizeof(I) == 8 && !is_signed<I>::value) {
    const X half_range = (X)9223372036854775808.0;
    if (x >= half_range && x < 2 * half_range) return (I)((u64)(i64)(x - half_range) + 0x8000000000000000ull);
  }
  const bool wide = sizeof(I) == 8 || (sizeof(I) == 4 && !is_signed<I>::value);
  const X limit = wide ? (X)9223372036854775808.0 : (X)2147483648.0;
  if (!(x > -limit - 1 && x < limit)) {
    f.note(INVALID);
    return wide ? (I)(u64)0x8000000000000000ull : (I)0x80000000u;
  }
  return wide ? (I)(i64)x : (I)(int)x;
}

template <class T> struct Convert {  // integers
  template <class F, class X> static EIN T of(F& f, X x) {
    if constexpr (is_float<X>::value) return to_integer<T>(f, x);
    else if constexpr (is_narrow<X>::value) return to_integer<T>(f, widen(x));
    else if constexpr (is_cplx<X>::value) return of(f, x.re);
    else return (T)x;
  }
};
template <class T> struct ConvertFloat {
  template <class F, class X> static EIN T of(F& f, X x) {
    if constexpr (is_narrow<X>::value) return (T)widen(x);
    else if constexpr (is_cplx<X>::value) return of(f, x.re);
    else {
      T y = (T)x;
      if (sizeof(T) < sizeof(X) && is_float<X>::value) f.check(y, x);
      return y;
    }
  }
};
template <> struct Convert<float> : ConvertFloat<float> {};
template <> struct Convert<double> : ConvertFloat<double> {};
template <> struct Convert<bool> {
  template <class F, class X> static EIN bool of(F&, X x) {
    if constexpr (is_narrow<X>::value) return widen(x) != 0;
    else if constexpr (is_cplx<X>::value) return x.re != 0 || x.im != 0;
    else return x != 0;
  }
};
template <> struct Convert<half_t> {
  template <class F, class X> static EIN half_t of(F& f, X x) {
    if constexpr (same<X, half_t>::value) return x;
    else if constexpr (is_narrow<X>::value) return of(f, widen(x));
    else if constexpr (is_cplx<X>::value) return of(f, x.re);
    else if constexpr (is_float<X>::value) {
      half_t y = half(x);
      f.check(y, x);
      return y;
    } else {
      half_t y = half((double)x);
      f.check(y, x);
      return y;
    }
  }
};
template <> struct Convert<bfloat_t> {
  template <class F, class X> static EIN bfloat_t of(F& f, X x) {
    if constexpr (same<X, bfloat_t>::value) return x;
    else if constexpr (is_narrow<X>::value) return of(f, widen(x));
    else if constexpr (is_cplx<X>::value) return of(f, x.re);
    else {
      bfloat_t y = bfloat((float)x);
      f.check(y, x);
      return y;
    }
  }
};
template <class T> struct Convert<cplx<T>> {
  template <class F, class X> static EIN cplx<T> of(F& f, X x) {
    if constexpr (is_cplx<X>::value) return {Convert<T>::of(f, x.re), Convert<T>::of(f, x.im)};
    else return {Convert<T>::of(f, x), 0};
  }
};
template <class T, class F, class X> EIN T to(F& f, X x) {
  if constexpr (same<T, X>::value) return x;
  else return Convert<T>::of(f, x);
}

// --- functions of C, overloaded for float and double ---------------------------------------------------------------

#define EIN_C(name, c) \
  EIN float name(float x) { return c##f(x); } \
  EIN double name(double x) { return ::c(x); }
EIN_C(exp_, exp) EIN_C(log_, log) EIN_C(log1p_, log1p) EIN_C(expm1_, expm1) EIN_C(sqrt_, sqrt) EIN_C(sin_, sin)
EIN_C(cos_, cos) EIN_C(tan_, tan) EIN_C(tanh_, tanh) EIN_C(floor_, floor) EIN_C(ceil_, ceil) EIN_C(rint_, rint)
EIN_C(erf_, erf) EIN_C(fabs_, fabs) EIN_C(sinh_, sinh) EIN_C(cosh_, cosh)
#undef EIN_C
#define EIN_C2(name, c) \
  EIN float name(float x, float y) { return c##f(x, y); } \
  EIN double name(double x, double y) { return ::c(x, y); }
EIN_C2(pow_, pow) EIN_C2(fmod_, fmod) EIN_C2(copysign_, copysign) EIN_C2(hypot_, hypot) EIN_C2(atan2_, atan2)
#undef EIN_C2

// --- arithmetic ----------------------------------------------------------------------------------------------------

template <class F, class T> EIN T neg(F& f, T a);
template <class F, class T> EIN T add(F& f, T a, T b) {
  if constexpr (same<T, bool>::value) return a || b;
  else if constexpr (is_cplx<T>::value) {
    T r = {a.re + b.re, a.im + b.im};
    f.check(r, a, b);
    return r;
  } else if constexpr (is_float<T>::value) {
    T r = a + b;
    f.check(r, a, b);
    return r;
  } else return (T)((u64)a + (u64)b);
}
template <class F, class T> EIN T sub(F& f, T a, T b) {
  if constexpr (same<T, bool>::value) return a != b;
  else if constexpr (is_cplx<T>::value) {
    T r = {a.re - b.re, a.im - b.im};
    f.check(r, a, b);
    return r;
  } else if constexpr (is_float<T>::value) {
    T r = a - b;
    f.check(r, a, b);
    return r;
  } else return (T)((u64)a - (u64)b);
}
template <class F, class T> EIN T mul(F& f, T a, T b) {
  if constexpr (same<T, bool>::value) return a && b;
  else if constexpr (is_cplx<T>::value) {
    T r = {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    f.check(r, a, b);
    return r;
  } else if constexpr (is_float<T>::value) {
    T r = a * b;
    f.check(r, a, b);
    return r;
  } else return (T)((u64)a * (u64)b);
}
template <class F, class T> EIN void divided_by(F& f, T r, T a, T b) {
  if (finite_(r)) return;
  if (nan(r)) f.check(r, a, b);
  else if (finite_(a)) f.note(b == 0 ? DIVIDE : OVERFLOW_);
}
template <class F, class T> EIN T div(F& f, T a, T b) {
  if constexpr (is_cplx<T>::value) {  // Smith's algorithm (1962)
    T r;
    auto p = fabs_(b.re), q = fabs_(b.im);
    if (p >= q) {
      if (p == 0 && q == 0) {
        r = {a.re / p, a.im / p};
        f.note(nan(r) ? (nan(a) ? 0 : INVALID) : DIVIDE);
        return r;
      }
      auto ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
      r = {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    } else {
      auto ratio = b.re / b.im, scale = 1 / (b.im + b.re * ratio);
      r = {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
    }
    f.check(r, a, b);
    return r;
  } else {
    T r = a / b;
    divided_by(f, r, a, b);
    return r;
  }
}
template <class F, class T> EIN T floordiv(F& f, T a, T b) {
  if constexpr (is_float<T>::value) {
    if (b == 0) return div(f, a, b);
    T m = fmod_(a, b), d = (a - m) / b;
    if (m != 0) {
      if ((b < 0) != (m < 0)) d -= 1;
    }
    T r = copysign_((T)0, a / b);
    if (d != 0) {
      r = floor_(d);
      if (d - r > (T)0.5) r += 1;
    }
    f.check(r, a, b);
    return r;
  } else {
    if (b == 0) {
      f.note(DIVIDE);
      return 0;
    }
    if constexpr (is_signed<T>::value) {
      if (b == -1) {
        T r = (T)(0 - (u64)a);
        if (a < 0 && r == a) f.note(OVERFLOW_);
        return r;
      }
      T q = a / b;
      return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
    } else return a / b;
  }
}
template <class F, class T> EIN T mod(F& f, T a, T b) {
  if constexpr (is_float<T>::value) {
    T m = fmod_(a, b);
    if (b != 0) {
      if (m != 0) {
        if ((b < 0) != (m < 0)) m += b;
      } else m = copysign_((T)0, b);
    }
    f.check(m, a, b);
    return m;
  } else {
    if (b == 0) {
      f.note(DIVIDE);
      return 0;
    }
    if constexpr (is_signed<T>::value) {
      if (b == -1) return 0;
      T m = a % b;
      return m != 0 && (m < 0) != (b < 0) ? m + b : m;
    } else return a % b;
  }
}
template <class F, class T> EIN T exp(F& f, T x);
template <class F, class T> EIN T log(F& f, T x);
template <class F, class T> EIN T pow(F& f, T a, T b) {
  if constexpr (is_float<T>::value) {
    if (b == 2) return mul(f, a, a);
    T r = pow_(a, b);
    if (a == 0 && b < 0) f.note(DIVIDE);
    else f.check(r, a, b);
    return r;
  } else if constexpr (is_cplx<T>::value) {
    if (b.re == 0 && b.im == 0) return {1, 0};
    if (a.re == 0 && a.im == 0) {
      if (b.re > 0) return {0, 0};
      auto none = infinity_(a.re) - infinity_(a.re);
      f.note(INVALID);
      return {none, none};
    }
    int n = (int)b.re;
    if (b.im == 0 && n == b.re && n > -100 && n < 100) {
      T r = {1, 0}, p = a;
      for (int k = n < 0 ? -n : n; k; k >>= 1) {
        if (k & 1) r = mul(f, r, p);
        if (k > 1) p = mul(f, p, p);
      }
      return n < 0 ? div(f, T{1, 0}, r) : r;
    }
    return exp(f, mul(f, b, log(f, a)));
  } else if constexpr (same<T, bool>::value) return a || !b;
  else {
    if constexpr (is_signed<T>::value) {
      if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    }
    u64 r = 1, p = (u64)a;
    for (u64 k = (u64)b; k; k >>= 1, p *= p)
      if (k & 1) r *= p;
    return (T)r;
  }
}
template <class T> EIN bool before(T a, T b) {
  if constexpr (is_cplx<T>::value) return a.re < b.re || (a.re == b.re && a.im < b.im);
  else return a < b;
}
// The lower and the higher of two floats, NaN if either is NaN; one instruction on GPUs since compute capability 8.0.
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
EIN float lower(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
EIN float higher(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#else
EIN float lower(float a, float b) { return nan(a) ? a : nan(b) ? b : b < a ? b : a; }
EIN float higher(float a, float b) { return nan(a) ? a : nan(b) ? b : a < b ? b : a; }
#endif

template <class F, class T> EIN T min(F&, T a, T b) {
  if constexpr (same<T, bool>::value) return a && b;
  else if constexpr (same<T, float>::value) return lower(a, b);
  else return nan(a) ? a : nan(b) ? b : before(b, a) ? b : a;
}
template <class F, class T> EIN T max(F&, T a, T b) {
  if constexpr (same<T, bool>::value) return a || b;
  else if constexpr (same<T, float>::value) return higher(a, b);
  else return nan(a) ? a : nan(b) ? b : before(a, b) ? b : a;
}

template <class F, class T> EIN bool lt(F&, T a, T b) { return before(a, b); }
template <class F, class T> EIN bool gt(F&, T a, T b) { return before(b, a); }
template <class F, class T> EIN bool eq(F&, T a, T b) {
  if constexpr (is_cplx<T>::value) return a.re == b.re && a.im == b.im;
  else return a == b;
}
template <class F, class T> EIN bool ne(F& f, T a, T b) { return !eq(f, a, b); }
template <class F, class T> EIN bool le(F& f, T a, T b) { return before(a, b) || eq(f, a, b); }
template <class F, class T> EIN bool ge(F& f, T a, T b) { return before(b, a) || eq(f, a, b); }
template <class F> EIN bool and_(F&, bool a, bool b) { return a && b; }
template <class F> EIN bool or_(F&, bool a, bool b) { return a || b; }
template <class F> EIN bool not_(F&, bool a) { return !a; }

// --- functions -----------------------------------------------------------------------------------------------------

template <class F, class T> EIN T neg(F&, T a) {
  if constexpr (is_cplx<T>::value) return {-a.re, -a.im};
  else if constexpr (is_float<T>::value) return -a;
  else return (T)(0 - (u64)a);
}
template <class F, class T> EIN T exp(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    auto e = exp_(x.re);
    T r = x.im == 0 ? T{e, x.im} : T{e * cos_(x.im), e * sin_(x.im)};
    f.check(r, x);
    return r;
  } else {
    T r = exp_(x);
    f.check(r, x);
    return r;
  }
}
template <class F, class T> EIN T log(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    T r = {log_(hypot_(x.re, x.im)), atan2_(x.im, x.re)};
    if (x.re == 0 && x.im == 0) f.note(DIVIDE);
    return r;
  } else {
    T r = log_(x);
    if (x == 0) f.note(DIVIDE);
    else f.check(r, x);
    return r;
  }
}
template <class F, class T> EIN T log1p(F& f, T x) {
  if constexpr (is_cplx<T>::value) return log(f, T{x.re + 1, x.im});
  else {
    T r = log1p_(x);
    if (x == -1) f.note(DIVIDE);
    else f.check(r, x);
    return r;
  }
}
template <class F, class T> EIN T expm1(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    auto half = sin_(x.im / 2);
    return {expm1_(x.re) * cos_(x.im) - 2 * half * half, exp_(x.re) * sin_(x.im)};
  } else {
    T r = expm1_(x);
    f.check(r, x);
    return r;
  }
}
template <class F, class T> EIN T sqrt(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    if (x.re == 0 && x.im == 0) return {0, x.im};
    auto big = sqrt_((fabs_(x.re) + hypot_(x.re, x.im)) / 2), small = fabs_(x.im) / (2 * big);
    return x.re >= 0 ? T{big, copysign_(small, x.im)} : T{small, copysign_(big, x.im)};
  } else {
    T r = sqrt_(x);
    f.check(r, x);
    return r;
  }
}
template <class T> EIN T one() {
  if constexpr (is_cplx<T>::value) return {1, 0};
  else return (T)1;
}
template <class F, class T> EIN T rsqrt(F& f, T x) { return div(f, one<T>(), sqrt(f, x)); }
#define EIN_TRIGONOMETRIC(name, real, imag) \
  template <class F, class T> EIN T name(F& f, T x) { \
    T r; \
    if constexpr (is_cplx<T>::value) r = {real, imag}; \
    else r = name##_(x); \
    f.check(r, x); \
    return r; \
  }
EIN_TRIGONOMETRIC(sin, sin_(x.re) * cosh_(x.im), cos_(x.re) * sinh_(x.im))
EIN_TRIGONOMETRIC(cos, cos_(x.re) * cosh_(x.im), -sin_(x.re) * sinh_(x.im))
#undef EIN_TRIGONOMETRIC
template <class F, class T> EIN T tanh(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    auto t = tan_(x.im), h = tanh_(x.re);
    return div(f, T{h, t}, T{1, h * t});
  } else return tanh_(x);
}
template <class F, class T> EIN T tan(F& f, T x) {
  if constexpr (is_cplx<T>::value) {
    auto r = tanh(f, T{-x.im, x.re});
    return {r.im, -r.re};
  } else {
    T r = tan_(x);
    f.check(r, x);
    return r;
  }
}
template <class F, class T> EIN T erf(F&, T x) { return erf_(x); }
template <class F, class T> EIN T gelu(F&, T x) { return (T)0.5 * x * (1 + erf_(x * (T)0.70710678118654752440)); }
template <class F, class T> EIN T sigmoid(F&, T x) {  // no flag if exp overflows, since the result 0 is right
  Quiet q;
  return div(q, one<T>(), add(q, exp(q, neg(q, x)), one<T>()));
}
template <class F, class T> EIN T silu(F&, T x) {
  Quiet q;
  return div(q, x, add(q, exp(q, neg(q, x)), one<T>()));
}
template <class F, class T> EIN T relu(F& f, T x) { return max(f, x, T()); }
template <class F, class T> EIN T softplus(F& f, T x) { return log1p_(exp_(-fabs_(x))) + max(f, x, (T)0); }
template <class F, class T> EIN T abs(F&, T x) {
  if constexpr (is_float<T>::value) return fabs_(x);
  else if constexpr (is_signed<T>::value) return x < 0 ? (T)(0 - (u64)x) : x;
  else return x;
}
template <class F, class T> EIN T abs(F& f, cplx<T> x) {
  T r = hypot_(x.re, x.im);
  f.check(r, x);
  return r;
}
template <class F, class T> EIN T sign(F&, T x) {
  if constexpr (is_cplx<T>::value) {
    auto size = hypot_(x.re, x.im);
    return size == 0 ? T{0, 0} : T{x.re / size, x.im / size};
  } else return nan(x) ? x : x > 0 ? (T)1 : x < 0 ? (T)-1 : (T)0;
}
#define EIN_ROUND(name, c) \
  template <class F, class T> EIN T name(F&, T x) { \
    if constexpr (is_float<T>::value) return c(x); \
    else if constexpr (is_cplx<T>::value) return {c(x.re), c(x.im)}; \
    else return x; \
  }
EIN_ROUND(floor, floor_) EIN_ROUND(ceil, ceil_) EIN_ROUND(round, rint_)
#undef EIN_ROUND
template <class F, class T> EIN T conj(F&, T x) {
  if constexpr (is_cplx<T>::value) return {x.re, -x.im};
  else return x;
}
template <class F, class T> EIN T real(F&, T x) { return x; }
template <class F, class T> EIN T real(F&, cplx<T> x) { return x.re; }
template <class F, class T> EIN T imag(F&, T) { return T(); }
template <class F, class T> EIN T imag(F&, cplx<T> x) { return x.im; }

// --- memory --------------------------------------------------------------------------------------------------------

template <class T> EIN T load(const char* base, i64 offset) { return *(const T*)(base + offset); }
template <class T> EIN void store(char* base, i64 offset, T x) { *(T*)(base + offset) = x; }
template <> EIN bool load<bool>(const char* base, i64 offset) { return *(const unsigned char*)(base + offset) != 0; }
template <> EIN void store<bool>(char* base, i64 offset, bool x) { *(unsigned char*)(base + offset) = x; }

// A 64-bit word of a kernel's parameters whose value fits into 32 bits. Indices and offsets made of it are 32-bit
// numbers, whose products and quotients take a fraction of the instructions of 64-bit ones.
struct Narrow {
  i64 wide;
  EIN operator int() const { return (int)wide; }
};

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

EIN i64 floor_div(i64 a, i64 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
EIN i64 floor_mod(i64 a, i64 b) { return a - floor_div(a, b) * b; }
EIN i64 clamp(i64 a, i64 size) { return a < 0 ? 0 : a >= size ? size - 1 : a; }

// Returns whether the value of a key is in range. If not, stores the number of the point in the tile, `place`; the
// lowest one wins.
EIN bool inside(i64 value, i64 size, i64 place, u64* status) {
  if (value >= 0 && value < size) return true;
  atomicMin(status + 1, (u64)place);
  return false;
}
// Adds a thread's flags to the status record.
EIN void report(u64* status, unsigned seen) {
  if (seen) atomicOr(status, (u64)seen);
}

}  // namespace ein
