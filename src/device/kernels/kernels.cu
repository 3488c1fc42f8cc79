/* The kernels. scripts/make-kernels compiles this file to kernels.ptx. Each thread finds the entry of its block, and
 * runs the body for its units. The names are those of tdict_kernel_name(). */
#include "device/kernels/body_convert.h"
#include "device/kernels/body_unpack.h"
#include "device/kernels/body_window.h"

/* Finds the entry of a block as tdict_kernel_find() does. In each step, the lanes of a warp read 32 entries at once.
 * This needs fewer steps than a binary search, and each step waits for global memory. */
TDICT_BODY uint64_t find_by_warp(const uint64_t *table, uint64_t num_entries, uint64_t block) {
  const uint64_t lane = __nvvm_read_ptx_sreg_tid_x() % 32;
  uint64_t low = 0, count = num_entries; /* the entry is one of low, low + 1, ... low + count - 1 */
  while (count > 1) {
    const uint64_t step = (count + 31) / 32, offset = lane * step;
    const bool starts_before = offset < count && table[TDICT_WORDS_PER_ENTRY * (low + offset) + TDICT_ENTRY_BLOCK] <= block;
    const uint64_t passed = step * (uint64_t)(__builtin_popcount(__nvvm_vote_ballot_sync(~0u, starts_before)) - 1);
    low += passed;
    count = count - passed < step ? count - passed : step;
  }
  return low;
}

/* Finds the units of this thread. */
TDICT_BODY tdict_kernel_span span_of(const tdict_kernel_params *params) {
  const uint64_t block = __nvvm_read_ptx_sreg_ctaid_x(), thread = __nvvm_read_ptx_sreg_tid_x();
  const uint64_t *table = params->table ? (const uint64_t *)params->table : params->words;
  const uint64_t number = find_by_warp(table, params->num_entries, block);
  tdict_kernel_span span = tdict_kernel_span_of(table, params->num_entries, number, block, thread);
  span.result = params->results ? (uint64_t *)params->results + number : nullptr;
  return span;
}

/* Defines a kernel. The parameters are read where the driver stores them. In C, the address of the parameters would be
 * the address of a copy that each thread makes. */
#define KERNEL(name, body)                                                                           \
  extern "C" __attribute__((global, launch_bounds(TDICT_KERNEL_THREADS))) void name(tdict_kernel_params) { \
    uint64_t address;                                                                                \
    __asm__("{ mov.b64 %0, " #name "_param_0; cvta.param.u64 %0, %0; }" : "=l"(address));           \
    tdict_kernel_env env = {0};                                                                      \
    const tdict_kernel_span span = span_of((const tdict_kernel_params *)address);                   \
    body(&env, &span);                                                                               \
  }

/* Copies the units of a thread. If the entry is guarded, the threads of the block first check all positions. */
TDICT_BODY void copy(tdict_kernel_env *env, const tdict_kernel_span *span) {
  if (tdict_kernel_is_guarded(span)) {
    const uint64_t thread = __nvvm_read_ptx_sreg_tid_x();
    if (__nvvm_bar0_or(tdict_kernel_finds_bad(env, span, thread, TDICT_KERNEL_THREADS))) return;
  }
  tdict_kernel_copy(env, span);
}

KERNEL(tdict_copy, copy)
KERNEL(tdict_convert, tdict_kernel_convert)
KERNEL(tdict_fill, tdict_kernel_fill)
KERNEL(tdict_check, tdict_kernel_check)
KERNEL(tdict_unpack, tdict_kernel_unpack)
KERNEL(tdict_window, tdict_kernel_window)
