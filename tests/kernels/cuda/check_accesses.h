// What check_accesses.cpp is told by emulate.h and by its caller.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Ranges of a call: operands; results and workspace without values; results that are added to; shared memory.
enum { CONSTANT, EMPTY, VALUES, SHARED };

extern "C" {
void check_begin_launch(const void* stacks, size_t nbytes);
void check_shared(const void* begin, size_t nbytes);
void check_begin_block();
void check_barrier();  // all threads of the block have reached it
void check_thread(int thread);
void check_end_block();
void check_atomic(void* address, int size);
}
