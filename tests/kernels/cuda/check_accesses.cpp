// Checks each access of an emulated kernel, as compute-sanitizer does on a GPU: memcheck, initcheck and racecheck.
//
// The kernel is compiled with -fsanitize=thread, which calls a function before each load and store, and
// -fsanitize=bounds, which calls one for an index beyond its array. These functions are here; no library with others is
// linked. A call states the ranges that it may touch. A race is a pair of accesses to one byte,
// one of them a write and not both atomic, without a barrier between them: in shared memory by two threads of a block, in
// global memory by two threads of the launch.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "check_accesses.h"

namespace {
struct Access {
  uint32_t launch = 0, block = 0, interval = 0;
  uint16_t thread = 0;
  bool atomic = false;
};
struct Byte {
  Access write, read;
  bool many_readers = false;  // in the launch and, within a block, in the interval of `read`
  bool many_blocks = false;
  bool ready = false;  // has a value
};
struct Range {
  uintptr_t begin, end;
  int kind;
  std::vector<Byte> bytes;
};

std::map<int64_t, std::vector<Range>> calls;
std::vector<Range>* ranges;
std::vector<Range> shared;
Access now;
bool checking;
uintptr_t stacks_begin, stacks_end, module_begin, module_end;
std::set<std::string> faults;
std::string text;

int find_module(dl_phdr_info* info, size_t, void* inside) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || (uintptr_t)inside < begin || (uintptr_t)inside >= begin + part.p_memsz) continue;
    module_begin = info->dlpi_addr;
    for (int j = 0; j < info->dlpi_phnum; j++)
      if (info->dlpi_phdr[j].p_type == PT_LOAD)
        module_end = info->dlpi_addr + info->dlpi_phdr[j].p_vaddr + info->dlpi_phdr[j].p_memsz;
    return 1;
  }
  return 0;
}

void report(const char* what, bool write, int size, void* place) {
  char line[256];
  Dl_info info;
  const bool known = dladdr(place, &info) && info.dli_sname;
  snprintf(line, sizeof line, "%s: %s of %d bytes in %s", what, write ? "write" : "read", size,
           known ? info.dli_sname : "a kernel");
  faults.insert(line);
}

Range* range_of(uintptr_t at) {
  for (auto* list : {&shared, ranges})
    for (auto& range : *list)
      if (at >= range.begin && at < range.end) return &range;
  return nullptr;
}

bool unordered(const Access& before, bool in_shared, bool many_threads) {
  if (before.launch != now.launch) return false;
  if (before.block != now.block) return !in_shared;
  return before.interval == now.interval && (many_threads || before.thread != now.thread);
}

void check(void* address, int size, bool write, bool atomic, void* place) {
  const uintptr_t at = (uintptr_t)address;
  if (!checking || (at >= stacks_begin && at < stacks_end)) return;
  Range* range = range_of(at);
  if (!range) {
    if (at >= module_begin && at < module_end && !write) return;  // constants, parameters, indices of the thread
    return report("outside of the call's memory", write, size, place);
  }
  if (at + size > range->end) return report("past the end of a range", write, size, place);
  if (write && range->kind == CONSTANT) report("a write to an operand", write, size, place);
  if (at % (size < 16 ? size : 16)) report("not aligned", write, size, place);
  const bool in_shared = range->kind == SHARED;
  for (int i = 0; i < size; i++) {
    Byte& byte = range->bytes[at + i - range->begin];
    if (in_shared && byte.write.block != now.block) byte.ready = false;
    if ((!write || atomic) && !byte.ready) return report("a value that was never written", write, size, place);
    bool race = unordered(byte.write, in_shared, false) && !(atomic && byte.write.atomic);
    if (write && byte.read.launch == now.launch && !(atomic && byte.read.atomic))
      race |= unordered(byte.read, in_shared, byte.many_readers) || (byte.many_blocks && !in_shared);
    if (race) return report("a race", write, size, place);
    if (write) {
      byte.write = now;
      byte.write.atomic = atomic;
      byte.ready = true;
      continue;
    }
    const bool same_launch = byte.read.launch == now.launch, same_block = byte.read.block == now.block;
    const bool same_interval = same_launch && same_block && byte.read.interval == now.interval;
    byte.many_blocks = same_launch && (byte.many_blocks || !same_block);
    byte.many_readers = same_interval && (byte.many_readers || byte.read.thread != now.thread);
    byte.read = now;
  }
}

Range made(uintptr_t begin, uintptr_t end, int kind) {
  Range range{begin, end, kind, std::vector<Byte>(end - begin)};
  for (auto& byte : range.bytes) byte.ready = kind == CONSTANT || kind == VALUES;
  return range;
}
}  // namespace

extern "C" {
void check_begin_call(int64_t call, int64_t n, const int64_t* begins, const int64_t* ends, const int64_t* kinds) {
  auto& found = calls[call];
  for (int64_t i = 0; i < n; i++)
    if (ends[i] > begins[i]) found.push_back(made(begins[i], ends[i], (int)kinds[i]));
}
void check_select_call(int64_t call) { ranges = &calls[call]; }
void check_end_call(int64_t call) { calls.erase(call); }
const char* check_faults() {
  text.clear();
  for (const auto& line : faults) text += line + "\n";
  faults.clear();
  return text.c_str();
}

void check_begin_launch(const void* stacks, size_t nbytes) {
  stacks_begin = (uintptr_t)stacks, stacks_end = stacks_begin + nbytes;
  if (!module_end) dl_iterate_phdr(find_module, (void*)&now);
  now.launch++;
  now.block = now.interval = 0;
  shared.clear();
}
void check_shared(const void* begin, size_t nbytes) {
  if (nbytes) shared.push_back(made((uintptr_t)begin, (uintptr_t)begin + nbytes, SHARED));
}
void check_begin_block() { now.block++, now.interval = 0, checking = true; }
void check_barrier() { now.interval++; }
void check_thread(int thread) { now.thread = (uint16_t)thread; }
void check_end_block() { checking = false; }
void check_atomic(void* address, int size) { check(address, size, true, true, __builtin_return_address(0)); }

void __ubsan_handle_out_of_bounds(void*, void*) { report("an index beyond its array", false, 0, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
#define HOOKS(n)                                                                                            \
  void __tsan_read##n(void* at) { check(at, n, false, false, __builtin_return_address(0)); }                 \
  void __tsan_write##n(void* at) { check(at, n, true, false, __builtin_return_address(0)); }                 \
  void __tsan_unaligned_read##n(void* at) { check(at, n, false, false, __builtin_return_address(0)); }       \
  void __tsan_unaligned_write##n(void* at) { check(at, n, true, false, __builtin_return_address(0)); }       \
  void __tsan_volatile_read##n(void* at) { check(at, n, false, false, __builtin_return_address(0)); }        \
  void __tsan_volatile_write##n(void* at) { check(at, n, true, false, __builtin_return_address(0)); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* at, unsigned long n) { check(at, (int)n, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long n) { check(at, (int)n, true, false, __builtin_return_address(0)); }
}
