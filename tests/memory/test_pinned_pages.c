/* Page-locked pages: which way they are come by, and that nothing is left behind when a way fails. */
#include <sys/mman.h>

#include "memory/fakes.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static bool is_mapped(void *address) { return msync(address, PAGE, MS_ASYNC) == 0; }

CASE(pinned_pages_small_ones_are_the_drivers) {
  static const size_t asked[] = {0, 1, PAGE, PAGE + 1, HUGE_PAGE - PAGE};
  static const size_t given[] = {PAGE, PAGE, PAGE, 2 * PAGE, HUGE_PAGE - PAGE};
  fake_pinner fake;
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    tdict_pinned_pages pages;
    td_ok(tdict_pinned_pages_get(&pinner, asked[i], &pages, err));
    assert_int_equal(pages.way, TDICT_PINNED_DRIVER);
    assert_int_equal(pages.bytes, given[i]);
    assert_int_equal(atomic_load(&fake.allocated_bytes), given[i]);
    memset(pages.data, 1, pages.bytes);
    tdict_pinned_pages_put(&pinner, &pages);
    assert_int_equal(atomic_load(&fake.allocated_bytes), 0);
  }
  assert_int_equal(atomic_load(&fake.registers), 0);
  assert_int_equal(atomic_load(&fake.frees), 5);
}

/* Registering begins when every page is there: the driver would fault them in one by one. */
static tdict_status all_resident(void *pages, size_t bytes) {
  unsigned char *there = calloc(bytes / PAGE, 1);
  bool all = there && mincore(pages, bytes, there) == 0;
  for (size_t i = 0; all && i < bytes / PAGE; i++) all = there[i] & 1;
  free(there);
  return all ? TDICT_OK : TDICT_EFORMAT;
}

CASE(pinned_pages_large_ones_are_registered) {
  static const size_t asked[] = {HUGE_PAGE - PAGE + 1, HUGE_PAGE, HUGE_PAGE + 1, 5 * (size_t)HUGE_PAGE + 12345};
  for (int threads = 0; threads < 3; threads += 2)
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
      fake_pinner fake;
      tdict_pool *pool = NULL;
      tdict_pinned_pages pages = {0};
      if (threads) td_ok(tdict_pool_create(threads, &pool, err));
      tdict_pinner pinner = fake_pinner_init(&fake, pool);
      fake.on_register = all_resident;
      td_ok(tdict_pinned_pages_get(&pinner, asked[i], &pages, err));
      assert_int_equal(pages.way, TDICT_PINNED_REGISTERED);
      assert_int_equal(pages.bytes, (asked[i] + PAGE - 1) / PAGE * PAGE);
      assert_int_equal((uintptr_t)pages.data % HUGE_PAGE, 0);
      for (size_t at = 0; at < pages.bytes; at++) assert_int_equal(((unsigned char *)pages.data)[at], 0);
      memset(pages.data, 0xA5, pages.bytes);
      assert_int_equal(atomic_load(&fake.registers), 1);
      tdict_pinned_pages_put(&pinner, &pages);
      assert_int_equal(atomic_load(&fake.unregisters), 1);
      assert_false(is_mapped(pages.data));
      assert_false(is_mapped((char *)pages.data + pages.bytes - PAGE));
      assert_int_equal(atomic_load(&fake.allocates) + atomic_load(&fake.frees), 0);
      tdict_pool_destroy(pool);
    }
}

static void *refused_pages;
static tdict_status refuse(void *pages, size_t bytes) {
  (void)bytes;
  refused_pages = pages;
  return TDICT_EDEVICE;
}

CASE(pinned_pages_come_from_the_driver_when_registering_fails) {
  fake_pinner fake;
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  tdict_pinned_pages pages;
  tdict_error untouched;
  fake.on_register = refuse;
  memset(&untouched, 0xA5, sizeof untouched);
  assert_int_equal(tdict_pinned_pages_get(&pinner, 2 * HUGE_PAGE, &pages, &untouched), TDICT_OK);
  assert_int_equal((unsigned char)untouched.message[0], 0xA5); /* no error, so none is written */
  assert_int_equal(pages.way, TDICT_PINNED_DRIVER);
  assert_int_equal(atomic_load(&fake.allocated_bytes), 2 * HUGE_PAGE);
  tdict_pinned_pages_put(&pinner, &pages);
  assert_int_equal(atomic_load(&fake.unregisters), 0);
  assert_int_equal(atomic_load(&fake.frees), 1);
  fake.allocates_left = 0; /* so that nothing new is mapped where the pages were */
  td_fails(TDICT_ENOMEM, "allocate refused", tdict_pinned_pages_get(&pinner, 64 * (size_t)HUGE_PAGE, &pages, err));
  assert_int_equal(td_last_error.native, 2);
  assert_false(is_mapped(refused_pages));
}

CASE(pinned_pages_refuse_what_does_not_fit) {
  fake_pinner fake;
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  tdict_pinned_pages pages;
  td_fails(TDICT_EOVERFLOW, "do not fit", tdict_pinned_pages_get(&pinner, SIZE_MAX, &pages, err));
  td_fails(TDICT_EOVERFLOW, "do not fit", tdict_pinned_pages_get(&pinner, SIZE_MAX / 2 + 2, &pages, err));
  assert_int_equal(atomic_load(&fake.allocates), 0);
  /* No address space for pages of our own: the driver is asked, and none of them was registered. */
  fake.allocates_left = 0;
  td_fails(TDICT_ENOMEM, "allocate refused", tdict_pinned_pages_get(&pinner, (size_t)1 << 60, &pages, err));
  assert_int_equal(atomic_load(&fake.registers), 0);
  assert_int_equal(atomic_load(&fake.allocates), 1);
}
