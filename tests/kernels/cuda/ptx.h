// PTX instructions as C++, for the functions that ptx.py writes. Registers are 64-bit words; get and put read and write
// them as another type. An address of shared memory counts from the beginning of the block's shared memory.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cfenv>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <vector>

static void ptx_end_block();
#define EIN_END_BLOCK ptx_end_block
#include "emulate.h"

namespace ptx {
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t s64;
typedef int32_t s32;
typedef int16_t s16;
typedef int8_t s8;
typedef float f32;
typedef double f64;
typedef _Float16 f16;
typedef unsigned char byte;

// The order of ptx.py's COUNTERS.
enum { FLOAT, INTEGER, DIVISION, SPECIAL, MOVE, COMPARE, MEMORY, CONTROL, BARRIER,
       READ, WRITTEN, SHARED_READ, SHARED_WRITTEN, LOCAL, SECTORS, REQUESTS, COUNTERS };
static u64 counts[COUNTERS];
enum { MISALIGNED = 2, OUTSIDE = 4, TRAP = 8 };
static int faults;

template <class T> inline T get(u64 x) {
  T y;
  memcpy(&y, &x, sizeof y);
  return y;
}
template <> inline bool get<bool>(u64 x) { return x & 1; }
template <class T> inline u64 put(T x) {
  u64 r = 0;
  memcpy(&r, &x, sizeof x);
  return r;
}

// --- memory ---

static u32 shared_nbytes;
inline byte* shared(u64 at, int size) {
  if ((u32)at + (u64)size > shared_nbytes) {
    faults |= OUTSIDE;
    return emulate_dynamic;
  }
  return emulate_dynamic + (u32)at;
}
inline u64 to_shared(u64 pointer) { return (u32)(pointer - (u64)emulate_dynamic); }
inline bool is_shared(u64 pointer) { return pointer - (u64)emulate_dynamic < shared_nbytes; }
inline byte* aligned(byte* at, int size) {
  if ((u64)at % size) faults |= MISALIGNED;
  return at;
}

#ifdef EIN_TRAFFIC
// The 32-byte sectors that a warp's accesses take together. Threads run one after the other, so the accesses of a block are
// collected: those of one instruction, executed for the same time, are one request of a warp.
struct Access { u32 instruction, time; u64 at; int size; };
static std::vector<Access> accesses[1024];
static std::vector<u32> times[1024];
inline void traffic(u32 instruction, const byte* at, int size) {
  auto& own = times[emulate::current];
  if (own.size() <= instruction) own.resize(instruction + 1);
  accesses[emulate::current].push_back({instruction, own[instruction]++, (u64)at, size});
}
inline void end_block() {
  for (int warp = 0; warp < 1024; warp += 32) {
    std::map<std::pair<u32, u32>, std::set<u64>> requests;
    for (int t = warp; t < warp + 32; t++) {
      for (const Access& a : accesses[t])
        for (u64 s = a.at / 32; s <= (a.at + a.size - 1) / 32; s++) requests[{a.instruction, a.time}].insert(s);
      accesses[t].clear();
      times[t].clear();
    }
    counts[REQUESTS] += requests.size();
    for (const auto& r : requests) counts[SECTORS] += r.second.size();
  }
}
#else
inline void traffic(u32, const byte*, int) {}
inline void end_block() {}
#endif

inline byte* global(u32 instruction, u64 at, int size) {
  traffic(instruction, (byte*)at, size);
  return aligned((byte*)at, size);
}
inline byte* generic(u32 instruction, u64 at, int size, bool writes) {
  if (is_shared(at)) {
    counts[writes ? SHARED_WRITTEN : SHARED_READ] += size;
    return shared(to_shared(at), size);
  }
  counts[writes ? WRITTEN : READ] += size;
  return global(instruction, at, size);
}
template <class T> inline u64 load(const byte* at) {
  T x;
  memcpy(&x, at, sizeof x);
  if (std::is_integral<T>::value && std::is_signed<T>::value) return (u64)(s64)x;
  return put(x);
}
template <class T> inline void store(byte* at, u64 value) {
  T x = get<T>(value);
  memcpy(at, &x, sizeof x);
}

// --- arithmetic ---

// Denormal numbers become zero (.ftz), a float is limited to 0..1 (.sat).
inline f32 flush(f32 x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0, x) : x; }
template <class T> inline T saturate(T x) { return x != x || x < 0 ? 0 : x > 1 ? 1 : x; }

template <class T> __attribute__((noinline, optimize("rounding-math"))) T rounded_fma(int mode, T a, T b, T c) {
  const int before = fegetround();
  fesetround(mode);
  volatile T x = a, y = b, z = c;
  volatile T r = sizeof(T) == 4 ? (T)fmaf(x, y, z) : (T)fma(x, y, z);
  fesetround(before);
  return r;
}
template <class T> __attribute__((noinline, optimize("rounding-math"))) T rounded_mul(int mode, T a, T b) {
  const int before = fegetround();
  fesetround(mode);
  volatile T x = a, y = b;
  volatile T r = x * y;
  fesetround(before);
  return r;
}
template <class T> inline T rounded_add(int mode, T a, T b) { return rounded_fma<T>(mode, a, (T)1, b); }
inline f32 fused(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
inline f64 fused(f64 a, f64 b, f64 c) { return fma(a, b, c); }

template <class T> inline T canonical_nan() { return sizeof(T) == 4 ? (T)get<f32>(0x7fffffff) : (T)NAN; }
template <class T> inline T smaller(T a, T b) {
  if (std::is_floating_point<T>::value) {
    if (a != a || b != b) return a == a ? a : b == b ? b : canonical_nan<T>();
    if (a == b) return std::signbit((f64)a) ? a : b;
  }
  return a < b ? a : b;
}
template <class T> inline T larger(T a, T b) {
  if (std::is_floating_point<T>::value) {
    if (a != a || b != b) return a == a ? a : b == b ? b : canonical_nan<T>();
    if (a == b) return std::signbit((f64)a) ? b : a;
  }
  return a > b ? a : b;
}
template <class T> inline T smaller_nan(T a, T b) { return a != a || b != b ? canonical_nan<T>() : smaller(a, b); }
template <class T> inline T larger_nan(T a, T b) { return a != a || b != b ? canonical_nan<T>() : larger(a, b); }

template <class T> inline T quotient(T a, T b) {
  if (std::is_floating_point<T>::value) return a / b;
  if (!b) return (T)~(u64)0;
  if (std::is_signed<T>::value && b == (T)-1) return (T)(0 - (u64)a);
  return a / b;
}
template <class T> inline T remainder(T a, T b) {
  if (!b) return a;
  if (std::is_signed<T>::value && b == (T)-1) return 0;
  return a % b;
}
template <class T> inline T high(T a, T b) {
  typedef typename std::conditional<std::is_signed<T>::value, __int128, unsigned __int128>::type wide;
  return (T)(((wide)a * b) >> (8 * sizeof(T)));
}
template <class T> inline T shift_left(T a, u32 n) { return n >= 8 * sizeof(T) ? 0 : (T)((u64)a << n); }
template <class T> inline T shift_right(T a, u32 n) {
  if (n < 8 * sizeof(T)) return (T)(a >> n);
  return std::is_signed<T>::value && a < 0 ? (T)-1 : (T)0;
}
template <class T> inline T insert_bits(T a, T b, u32 at, u32 count) {
  if (at >= 8 * sizeof(T)) return b;
  T mask = count >= 8 * sizeof(T) ? ~(T)0 : (T)(((T)1 << count) - 1);
  mask = (T)(mask << at);
  return (b & ~mask) | ((T)(a << at) & mask);
}
template <class T> inline T extract_bits(T a, u32 at, u32 count) {
  const u32 width = 8 * sizeof(T);
  if (!count) return 0;
  const u32 top = at + count - 1 < width ? at + count - 1 : width - 1;
  const bool sign = std::is_signed<T>::value && ((u64)a >> top & 1);
  T r = 0;
  for (u32 n = 0; n < width; n++) {
    const bool bit = n < count && at + n < width ? (u64)a >> (at + n) & 1 : sign;
    r |= (T)((u64)bit << n);
  }
  return r;
}
inline u32 permute(u32 a, u32 b, u32 selector) {
  const u64 both = (u64)b << 32 | a;
  u32 r = 0;
  for (int n = 0; n < 4; n++) {
    const u32 k = selector >> 4 * n & 15;
    u32 one = both >> 8 * (k & 7) & 255;
    if (k & 8) one = one & 128 ? 255 : 0;
    r |= one << 8 * n;
  }
  return r;
}
inline u32 funnel(u32 a, u32 b, u32 c, bool left, bool wrap) {
  const u64 both = (u64)b << 32 | a;
  const u32 n = wrap ? c & 31 : c > 32 ? 32 : c;
  return left ? (u32)(both << n >> 32) : (u32)(both >> n);
}

// --- conversions ---

enum { NEAREST, ZERO, DOWN, UP };
template <class T> inline T to_whole(T x, int mode) {
  return mode == NEAREST ? rint(x) : mode == ZERO ? trunc(x) : mode == DOWN ? floor(x) : ceil(x);
}
template <class I, class F> inline I to_integer(F x, int mode) {
  const f64 y = to_whole((f64)x, mode);
  const int width = 8 * sizeof(I);
  const bool is_signed = std::is_signed<I>::value;
  if (y != y) return width == 64 ? (I)0x8000000000000000ull : 0;
  if (y < (is_signed ? -ldexp(1, width - 1) : 0)) return is_signed ? (I)((u64)1 << (width - 1)) : 0;
  if (y >= ldexp(1, width - is_signed)) return (I)(is_signed ? ((u64)1 << (width - 1)) - 1 : ~(u64)0);
  return (I)y;
}
// Approximations of reciprocals in f64 have 20 bits after the point; Newton steps follow.
inline f64 upper_half(f64 x) { return get<f64>(put(x) & 0xffffffff00000000ull); }
}  // namespace ptx

static void ptx_end_block() { ptx::end_block(); }
