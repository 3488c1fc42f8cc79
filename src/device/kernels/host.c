/* Runs the bodies of the kernels as loops. See host.h for the thread rule. */
#include "device/kernels/host.h"

#include "device/kernels/body_convert.h"
#include "device/kernels/body_unpack.h"
#include "device/kernels/body_window.h"

/* Returns the host address of the table, or NULL if the table is not accessible. The table is read before its size is
 * known, so only its start is checked here. */
static const uint64_t *find_table(const tdict_kernel_params *params, tdict_kernel_env *env) {
  if (!params->table) return params->words;
  return tdict_kernel_at(env, params->table, sizeof(uint64_t));
}

/* Defines a function that runs the body of a kernel for all threads of a block. Returns false if an address is not
 * accessible. Both structs are copies, so that the compiler keeps their members in registers. */
#define RUN_BLOCK(name, body)                                                           \
  static bool name(tdict_kernel_env env, tdict_kernel_span span) {                      \
    const uint64_t first = span.first;                                                  \
    for (uint64_t thread = 0; thread < TDICT_KERNEL_THREADS && !env.failed; thread++) { \
      span.first = first + thread;                                                      \
      body(&env, &span);                                                                \
    }                                                                                   \
    return !env.failed;                                                                 \
  }
RUN_BLOCK(run_copy, tdict_kernel_copy)
RUN_BLOCK(run_convert, tdict_kernel_convert)
RUN_BLOCK(run_fill, tdict_kernel_fill)
RUN_BLOCK(run_check, tdict_kernel_check)
RUN_BLOCK(run_unpack, tdict_kernel_unpack)
RUN_BLOCK(run_window, tdict_kernel_window)

bool tdict_kernel_run_host(tdict_kernel_op op, const tdict_kernel_params *params, uint64_t num_blocks,
                           const tdict_kernel_access *access) {
  static bool (*const blocks[])(tdict_kernel_env env, tdict_kernel_span span) = {
      [TDICT_KERNEL_COPY] = run_copy,   [TDICT_KERNEL_CONVERT] = run_convert, [TDICT_KERNEL_FILL] = run_fill,
      [TDICT_KERNEL_CHECK] = run_check, [TDICT_KERNEL_UNPACK] = run_unpack,   [TDICT_KERNEL_WINDOW] = run_window};
  tdict_kernel_env env = {.at = access->at, .user = access->user};
  const uint64_t *table = find_table(params, &env);
  for (uint64_t block = 0; block < num_blocks && !env.failed; block++) {
    const uint64_t number = tdict_kernel_find(table, params->num_entries, block);
    tdict_kernel_span span = tdict_kernel_span_of(table, params->num_entries, number, block, 0);
    if (params->results) span.result = tdict_kernel_at(&env, params->results + 8 * number, sizeof *span.result);
    if (op == TDICT_KERNEL_COPY && tdict_kernel_is_guarded(&span) && tdict_kernel_finds_bad(&env, &span, 0, 1))
      continue;
    if (!blocks[op](env, span)) return false;
  }
  return !env.failed;
}
