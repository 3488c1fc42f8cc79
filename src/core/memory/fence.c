/* Implements sets of fences by open addressing. See fence.h for ownership and threads. */
#include "core/memory/fence.h"

#include <stdlib.h>

#include "core/base/error.h"

enum { FIRST_CAP = 8 };

/* Returns the place of a fence, or the free place where the fence belongs. The set must have allocated places. */
static tdict_fence **find_place(const tdict_fences *set, const tdict_fence *fence) {
  /* The low bits of most pointers are equal, so multiply the pointer and use high bits of the product. */
  const uint64_t mixed = (uint64_t)(uintptr_t)fence * 0x9e3779b97f4a7c15u;
  uint32_t i = (uint32_t)(mixed >> 32) & (set->cap - 1);
  while (set->at[i] && set->at[i] != fence) i = (i + 1) & (set->cap - 1);
  return &set->at[i];
}

static bool grow(tdict_fences *set) {
  tdict_fences larger = {.count = set->count, .cap = set->cap ? 2 * set->cap : FIRST_CAP};
  larger.at = calloc(larger.cap, sizeof(tdict_fence *));
  if (!larger.at) return false;
  for (uint32_t i = 0; i < set->cap; i++)
    if (set->at[i]) *find_place(&larger, set->at[i]) = set->at[i];
  free(set->at);
  *set = larger;
  return true;
}

void tdict_fences_add(void *user, tdict_fence *fence) {
  tdict_fences *set = user;
  if (set->no_memory || (set->cap && *find_place(set, fence)) || fence->ops->poll(fence)) return;
  if (2 * (set->count + 1) > set->cap && !grow(set)) {
    set->no_memory = true;
    return;
  }
  fence->ops->retain(fence);
  *find_place(set, fence) = fence;
  set->count++;
}

bool tdict_fences_has(const tdict_fences *set, const tdict_fence *fence) {
  return set->count && *find_place(set, fence);
}

void tdict_fences_wait(const tdict_fences *set) {
  for (uint32_t i = 0; i < set->cap; i++)
    if (set->at[i]) (void)set->at[i]->ops->wait(set->at[i], INT64_MAX);
}

tdict_status tdict_fences_wait_on_stream(const tdict_fences *set, const char *what, void *device, void *stream,
                                         tdict_error *err) {
  if (set->no_memory) return tdict_fail_memory(err, what, NULL, "the work to wait for");
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0; i < set->cap && status == TDICT_OK; i++) {
    tdict_fence *fence = set->at[i];
    if (fence && fence->ops->wait_on_stream)
      status = fence->ops->wait_on_stream(fence, device, stream, err);
    else if (fence)
      (void)fence->ops->wait(fence, INT64_MAX);
  }
  return status;
}

void tdict_fences_reset(tdict_fences *set) {
  for (uint32_t i = 0; i < set->cap; i++)
    if (set->at[i]) set->at[i]->ops->release(set->at[i]);
  free(set->at);
  *set = (tdict_fences){0};
}
