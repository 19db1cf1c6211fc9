// A kernel of PTX on a CPU: blocks one after the other, every thread of a block a fiber that runs until a barrier.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define STACK (1 << 16)
static int NT, TID, BLOCK, BLOCKS;
static const uint64_t *P;  // parameters
static jmp_buf *AT, MAIN;
static char *DONE;
static ucontext_t *CONTEXT, HOME;

static void barrier(void) { if (!_setjmp(AT[TID])) _longjmp(MAIN, 1); }
static inline float f32_of(uint32_t w) { float f; memcpy(&f, &w, 4); return f; }
static inline double f64_of(uint64_t w) { double f; memcpy(&f, &w, 8); return f; }
static inline uint32_t of_f32(float f) { uint32_t w; memcpy(&w, &f, 4); return w; }
static inline uint64_t of_f64(double f) { uint64_t w; memcpy(&w, &f, 8); return w; }
static inline int64_t to_s64(double f) {
  if (f != f) return INT64_MIN;
  return f >= 9223372036854775808.0 ? INT64_MAX : f < -9223372036854775808.0 ? INT64_MIN : (int64_t)f;
}
static inline int32_t to_s32(double f) {
  return f != f ? 0 : f >= 2147483648.0 ? INT32_MAX : f < -2147483648.0 ? INT32_MIN : (int32_t)f;
}
static inline uint64_t bfi64(uint64_t a, uint64_t b, uint32_t at, uint32_t n) {
  uint64_t m = (n >= 64 ? ~0ull : (1ull << n) - 1) << at;
  return (b & ~m) | ((a << at) & m);
}
static inline uint32_t bfi32(uint32_t a, uint32_t b, uint32_t at, uint32_t n) {
  uint32_t m = (n >= 32 ? ~0u : (1u << n) - 1) << at;
  return (b & ~m) | ((a << at) & m);
}
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t how) {
  uint64_t w = (uint64_t)b << 32 | a;
  uint32_t d = 0;
  for (int k = 0; k < 4; k++) {
    uint32_t s = how >> (4 * k);
    uint8_t y = w >> (8 * (s & 7));
    if (s & 8) y = (y & 0x80) ? 0xff : 0;
    d |= (uint32_t)y << (8 * k);
  }
  return d;
}
#define SHIFT(w, n, bits, op) ((n) >= bits ? 0 : (w) op (n))
#define SAR(w, n, bits) ((w) >> ((n) >= bits ? bits - 1 : (n)))

// BODY

static void enter(void) { body(); DONE[TID] = 1; _longjmp(MAIN, 1); }

void launch(int blocks, int threads, int reverse, const uint64_t *parameters) {
  NT = threads; BLOCKS = blocks; P = parameters;
  AT = malloc(sizeof(jmp_buf) * NT); DONE = malloc(NT); CONTEXT = malloc(sizeof(ucontext_t) * NT);
  char *stacks = malloc((size_t)STACK * NT);
  for (BLOCK = 0; BLOCK < blocks; BLOCK++) {
    memset(DONE, 0, NT);
    int begun = 0, left = NT;
    while (left) {
      for (int k = 0; k < NT; k++) {
        TID = reverse ? NT - 1 - k : k;
        if (DONE[TID]) continue;
        if (!_setjmp(MAIN)) {
          if (!begun) {
            getcontext(&CONTEXT[TID]);
            CONTEXT[TID].uc_stack.ss_sp = stacks + (size_t)STACK * TID; CONTEXT[TID].uc_stack.ss_size = STACK;
            CONTEXT[TID].uc_link = &HOME; makecontext(&CONTEXT[TID], enter, 0);
            setcontext(&CONTEXT[TID]);
          } else _longjmp(AT[TID], 1);
        }
        if (DONE[TID]) left--;
      }
      begun = 1;
    }
  }
  free(AT); free(DONE); free(CONTEXT); free(stacks);
}
