/* Tests the cache of host memory: when a freed block is reused, and when the kept block is freed. */
#include "core/memory/host_cache.h"

#include <sys/mman.h>

#include "core/memory/fakes.h"
#include "support/threads.h"

enum { BLOCK = 64 << 20, OLD_BYTE = 0x5A };

static tdict_storage *new_block(tdict_host_cache *cache, size_t bytes) {
  tdict_storage *s = NULL;
  td_ok(tdict_host_cache_storage(cache, bytes, &s, err));
  assert_int_equal(s->bytes, bytes);
  assert_int_equal((uintptr_t)s->data % (2 << 20), 0);
  assert_true(tdict_storage_is_plain(s));
  return s;
}
static tdict_host_cache *new_cache(void) {
  tdict_host_cache *cache = NULL;
  td_ok(tdict_host_cache_create(&cache, err));
  return cache;
}
/* Allocates a block, writes its first byte, and frees it. Returns its address. */
static void *write_and_free(tdict_host_cache *cache) {
  tdict_storage *s = new_block(cache, BLOCK);
  void *data = s->data;
  memset(data, OLD_BYTE, 1);
  tdict_storage_release(s);
  return data;
}

CASE(host_cache_block_serves_again) {
  tdict_host_cache *cache = new_cache();
  assert_false(tdict_host_cache_has(cache, BLOCK));
  void *data = write_and_free(cache);
  static const size_t sizes[] = {BLOCK, BLOCK - 4097, BLOCK, BLOCK / 9 * 8 + 8192};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    assert_true(tdict_host_cache_has(cache, sizes[i]));
    tdict_storage *s = new_block(cache, sizes[i]);
    assert_ptr_equal(s->data, data);
    assert_false(tdict_host_cache_has(cache, sizes[i]));
    memset((char *)s->data + sizes[i] - 1, OLD_BYTE, 1);
    tdict_storage_release(s);
  }
  tdict_host_cache_close(cache);
}

CASE(host_cache_block_of_another_size_is_not_used) {
  static const size_t sizes[] = {BLOCK + 1, BLOCK / 9 * 8 - 8192, TDICT_HOST_CACHE_FROM};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tdict_host_cache *cache = new_cache();
    write_and_free(cache);
    assert_false(tdict_host_cache_has(cache, sizes[i]));
    tdict_storage *s = new_block(cache, sizes[i]);
    assert_int_not_equal(*(unsigned char *)s->data, OLD_BYTE);
    tdict_storage_release(s);
    tdict_host_cache_close(cache);
  }
}

/* Of two freed blocks, the cache keeps the one that was freed last. */
CASE(host_cache_keeps_one_block) {
  tdict_host_cache *cache = new_cache();
  tdict_storage *first = new_block(cache, BLOCK), *second = new_block(cache, BLOCK);
  void *data = second->data;
  assert_ptr_not_equal(first->data, data);
  tdict_storage_release(first);
  tdict_storage_release(second);
  first = new_block(cache, BLOCK);
  assert_ptr_equal(first->data, data);
  tdict_storage_release(first);
  tdict_host_cache_close(cache);
}

/* The kernel may reclaim the pages of a kept block, but not locked pages. A block with locked pages is not kept. */
CASE(host_cache_does_not_keep_locked_pages) {
#if SANITIZED
  skip(); /* mlock() does nothing under a sanitizer */
#endif
  tdict_host_cache *cache = new_cache();
  tdict_storage *s = new_block(cache, TDICT_HOST_CACHE_FROM);
  memset(s->data, OLD_BYTE, 1);
  if (mlock(s->data, 4096) != 0) td_skip("mlock() is not permitted");
  tdict_storage_release(s);
  s = new_block(cache, TDICT_HOST_CACHE_FROM);
  assert_int_not_equal(*(unsigned char *)s->data, OLD_BYTE);
  tdict_storage_release(s);
  tdict_host_cache_close(cache);
}

CASE(host_cache_storages_outlive_their_cache) {
  tdict_host_cache *cache = new_cache();
  tdict_storage *s = new_block(cache, TDICT_HOST_CACHE_FROM);
  tdict_host_cache_close(cache);
  memset(s->data, OLD_BYTE, s->bytes);
  tdict_storage_release(s);
  tdict_host_cache_close(NULL);
}

CASE(host_cache_survives_enomem) {
  tdict_host_cache *cache = NULL;
  tdict_storage *s = NULL;
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "no host memory", tdict_host_cache_create(&cache, err));
  assert_true(td_fail_alloc_stop());
  cache = new_cache();
  for (int n = 0; n < 3; n++) { /* allocating the block's record, the storage's record or the bytes fails */
    td_fail_alloc(n, false);
    td_fails(TDICT_ENOMEM, "no host memory", tdict_host_cache_storage(cache, TDICT_HOST_CACHE_FROM, &s, err));
    assert_true(td_fail_alloc_stop());
  }
  write_and_free(cache);
  td_fail_alloc(0, false); /* allocating the record of the storage fails */
  td_fails(TDICT_ENOMEM, "no host memory", tdict_host_cache_storage(cache, BLOCK, &s, err));
  assert_true(td_fail_alloc_stop());
  tdict_host_cache_close(cache);
}

static void *use_often(void *user) {
  for (int i = 0; i < 200; i++) {
    tdict_storage *s = NULL;
    td_ok(tdict_host_cache_storage(user, TDICT_HOST_CACHE_FROM, &s, err));
    _Atomic(int) *word = s->data;
    atomic_store_explicit(word, i, memory_order_relaxed);
    assert_int_equal(atomic_load_explicit(word, memory_order_relaxed), i); /* the block has only one user */
    tdict_storage_release(s);
  }
  return NULL;
}

CASE(host_cache_serves_several_threads) {
  tdict_host_cache *cache = new_cache();
  td_in_threads(4, use_often, cache, 0);
  tdict_host_cache_close(cache);
}
