/* Logs and counts the samples and batches that the option `on_error` skips. The loader owns the list of logged samples.
 * Thread rule: any thread may call the functions, but not under the loader's lock, because they call the log. */
#include "core/base/array.h"
#include "device/devices.h"
#include "services/loader/loader_internal.h"

/* Adds a sample to the list. Returns false if the list has it already. The caller holds the lock. If memory is
 * exhausted, the sample is logged again the next time. */
static bool add_sample(tdict_loader *l, int64_t index) {
  size_t at = l->num_logged;
  while (at > 0 && l->logged[at - 1] > index) at--;
  if (at > 0 && l->logged[at - 1] == index) return false;
  if (!TDICT_RESERVE(l->logged, l->logged_capacity, l->num_logged + 1)) return true;
  for (size_t i = l->num_logged++; i > at; i--) l->logged[i] = l->logged[i - 1];
  l->logged[at] = index;
  return true;
}

static void log_skip(const tdict_loader *l, const char *what, const tdict_error *why) {
  tdict_log_write(tdict_devices_log(tdict_context_devices(l->context)), TDICT_LOG_WARNING, "%s is skipped: %s%s%s",
                  what, why->path, why->path[0] ? ": " : "", why->message);
}

void tdict_loader_skip_sample(tdict_loader *l, int64_t index, const tdict_error *why) {
  pthread_mutex_lock(&l->lock);
  const bool is_new = add_sample(l, index);
  l->stats.num_skipped_samples++;
  pthread_mutex_unlock(&l->lock);
  if (is_new) log_skip(l, "a sample", why);
}

void tdict_loader_skip_batch(tdict_loader *l, const tdict_error *why) {
  pthread_mutex_lock(&l->lock);
  l->stats.num_skipped_batches++;
  pthread_mutex_unlock(&l->lock);
  log_skip(l, "a batch", why);
}
