/* Tests how page-locked pages are obtained. A failed attempt must leave nothing allocated or registered. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "core/memory/fakes.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static bool is_mapped(void *address) { return msync(address, PAGE, MS_ASYNC) == 0; }

CASE(pinned_pages_small_blocks_come_from_the_driver) {
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

/* Accepts a registration only if all pages are resident, because the driver would fault in other pages one by one. */
static tdict_status all_resident(void *pages, size_t bytes) {
  scoped_bytes there = calloc(bytes / PAGE, 1);
  bool all = there && mincore(pages, bytes, there) == 0;
  for (size_t i = 0; all && i < bytes / PAGE; i++) all = there[i] & 1;
  return all ? TDICT_OK : TDICT_EFORMAT;
}

CASE(pinned_pages_large_blocks_are_registered) {
  static const size_t asked[] = {HUGE_PAGE - PAGE + 1, HUGE_PAGE, HUGE_PAGE + 1, 5 * (size_t)HUGE_PAGE + 12345};
  for (int threads = 0; threads < 3; threads += 2)
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
      fake_pinner fake;
      scoped_pool pool = NULL;
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
  assert_int_equal((unsigned char)untouched.message[0], 0xA5); /* the call succeeded, so it must not write an error */
  assert_int_equal(pages.way, TDICT_PINNED_DRIVER);
  assert_int_equal(atomic_load(&fake.allocated_bytes), 2 * HUGE_PAGE);
  tdict_pinned_pages_put(&pinner, &pages);
  assert_int_equal(atomic_load(&fake.unregisters), 0);
  assert_int_equal(atomic_load(&fake.frees), 1);
  fake.allocates_left = 0; /* the driver fails too; it might otherwise reuse the released addresses */
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
  /* mmap() fails for this size, so the pages are requested from the driver, and nothing is registered. */
  fake.allocates_left = 0;
  td_fails(TDICT_ENOMEM, "allocate refused", tdict_pinned_pages_get(&pinner, (size_t)1 << 60, &pages, err));
  assert_int_equal(atomic_load(&fake.registers), 0);
  assert_int_equal(atomic_load(&fake.allocates), 1);
}

/* The registrations that were requested, in order. */
static struct {
  char *at[64];
  size_t bytes[64], refuse_above;
  int count, refuse_from;
  atomic_int inside;
  bool overlapped;
} asked;
static tdict_status note_register(void *pages, size_t bytes) {
  if (atomic_fetch_add(&asked.inside, 1) != 0) asked.overlapped = true;
  tdict_status status = all_resident(pages, bytes);
  if (asked.count < 64) {
    asked.at[asked.count] = pages;
    asked.bytes[asked.count] = bytes;
  }
  if (bytes > asked.refuse_above || asked.count >= asked.refuse_from) status = TDICT_EDEVICE;
  asked.count++;
  atomic_fetch_sub(&asked.inside, 1);
  return status;
}
static tdict_pinner noting_pinner(fake_pinner *fake, tdict_pool *pool, size_t piece) {
  tdict_pinner pinner = fake_pinner_init(fake, pool);
  pinner.piece = piece;
  memset((void *)&asked, 0, sizeof asked);
  asked.refuse_above = SIZE_MAX;
  asked.refuse_from = 1000;
  fake->on_register = note_register;
  return pinner;
}

/* Checks which ranges are registered, with and without a thread pool. `wanted` is the number of registrations. All
 * pages of a range must be resident when it is registered. */
static void check_registered(size_t bytes, size_t piece, int wanted) {
  for (int threads = 0; threads < 5; threads += 4) {
    fake_pinner fake;
    scoped_pool pool = NULL;
    tdict_pinned_pages pages;
    if (threads) td_ok(tdict_pool_create(threads, &pool, err));
    tdict_pinner pinner = noting_pinner(&fake, pool, piece);
    td_ok(tdict_pinned_pages_get(&pinner, bytes, &pages, err));
    assert_int_equal(pages.way, TDICT_PINNED_REGISTERED);
    assert_int_equal(pages.bytes, bytes);
    assert_int_equal(pages.piece, wanted == 1 ? SIZE_MAX : piece);
    if (wanted > 1) assert_int_equal((uintptr_t)pages.data % piece, 0);
    assert_int_equal(asked.count, wanted);
    char *end = pages.data;
    for (int i = 0; i < wanted; end += asked.bytes[i++]) assert_ptr_equal(asked.at[i], end);
    assert_ptr_equal(end, (char *)pages.data + bytes);
    assert_false(asked.overlapped);
    tdict_pinned_pages_put(&pinner, &pages);
    assert_int_equal(atomic_load(&fake.unregisters), wanted);
    assert_int_equal(atomic_load(&fake.registered_bytes), 0);
  }
}

CASE(pinned_pages_are_one_registration) { check_registered(3 * TDICT_PINNED_PIECE + 5 * (size_t)PAGE, 0, 1); }

CASE(pinned_pages_are_registered_in_pieces) {
  check_registered(TDICT_PINNED_PIECE + 5 * (size_t)PAGE, TDICT_PINNED_PIECE, 2);
  check_registered(2 * TDICT_PINNED_PIECE + 5 * (size_t)PAGE, 3 * TDICT_PINNED_GRAIN, 6);
  check_registered(3 * TDICT_PINNED_PIECE, 2 * TDICT_PINNED_PIECE, 2); /* pieces may exceed TDICT_PINNED_PIECE */
  check_registered(TDICT_PINNED_PIECE, TDICT_PINNED_PIECE, 1);
}

/* If large pieces are refused, small pieces are tried. If the caller did not ask for pieces, the driver is tried first,
 * because its memory is not split into pieces. */
CASE(pinned_pages_fall_back_to_small_pieces) {
  static const size_t bytes = 5 * TDICT_PINNED_GRAIN + 3 * (size_t)PAGE, pieces[] = {0, 2 * TDICT_PINNED_GRAIN};
  for (int i = 0; i < 2; i++) {
    fake_pinner fake;
    tdict_pinned_pages pages;
    tdict_pinner pinner = noting_pinner(&fake, NULL, pieces[i]);
    asked.refuse_above = TDICT_PINNED_GRAIN;
    fake.allocates_left = 0;
    td_ok(tdict_pinned_pages_get(&pinner, bytes, &pages, err));
    assert_int_equal(pages.way, TDICT_PINNED_SMALL);
    assert_int_equal(pages.piece, TDICT_PINNED_GRAIN);
    assert_int_equal((uintptr_t)pages.data % TDICT_PINNED_GRAIN, 0);
    assert_int_equal(asked.count, 7); /* one refused registration, and six that succeed */
    assert_int_equal(asked.bytes[6], 3 * PAGE);
    assert_int_equal(atomic_load(&fake.allocates), pieces[i] ? 0 : 1);
    tdict_pinned_pages_put(&pinner, &pages);
    assert_int_equal(atomic_load(&fake.unregisters), 6);
    assert_int_equal(atomic_load(&fake.registered_bytes), 0);
  }
}

CASE(pinned_pages_come_from_the_driver_before_small_pieces) {
  fake_pinner fake;
  tdict_pinned_pages pages;
  tdict_pinner pinner = noting_pinner(&fake, NULL, 0);
  asked.refuse_above = TDICT_PINNED_GRAIN;
  td_ok(tdict_pinned_pages_get(&pinner, 5 * TDICT_PINNED_GRAIN, &pages, err));
  assert_int_equal(pages.way, TDICT_PINNED_DRIVER);
  assert_int_equal(pages.piece, SIZE_MAX);
  assert_int_equal(asked.count, 1);
  tdict_pinned_pages_put(&pinner, &pages);
  assert_int_equal(atomic_load(&fake.frees), 1);
}

CASE(pinned_pages_unregister_pieces_on_failure) {
  static const size_t bytes = 5 * TDICT_PINNED_GRAIN, pieces[] = {TDICT_PINNED_GRAIN, 2 * TDICT_PINNED_GRAIN};
  for (int i = 0; i < 2; i++) { /* in the second round, large pieces are refused before small ones are tried */
    fake_pinner fake;
    tdict_pinned_pages pages;
    tdict_pinner pinner = noting_pinner(&fake, NULL, pieces[i]);
    asked.refuse_above = TDICT_PINNED_GRAIN;
    asked.refuse_from = 3 + i;
    td_ok(tdict_pinned_pages_get(&pinner, bytes, &pages, err));
    assert_int_equal(pages.way, TDICT_PINNED_DRIVER);
    assert_int_equal(asked.count, 4 + i);
    assert_int_equal(atomic_load(&fake.unregisters), 3);
    assert_int_equal(atomic_load(&fake.registered_bytes), 0);
    tdict_pinned_pages_put(&pinner, &pages);
  }
}

/* Replaces syscall(), which the library calls here only for mbind(). Fails with bound.refuse_with, succeeds without
 * effect if this is 0, or makes the real call if bound.real is set. */
enum { WORD = 8 * sizeof(unsigned long), WORDS = 1024 / WORD };
static struct {
  int count, mode, refuse_with;
  void *at;
  size_t bytes;
  unsigned long nodes[WORDS];
  bool touched, real;
} bound;
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  long a[6];
  va_list args;
  va_start(args, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
  va_end(args);
  assert_int_equal(number, SYS_mbind);
  if (bound.real) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  unsigned char there = 0;
  bound.count++;
  bound.at = (void *)a[0];
  bound.bytes = (size_t)a[1];
  bound.mode = (int)a[2];
  memcpy(bound.nodes, (void *)a[3], sizeof bound.nodes);
  bound.touched = mincore(bound.at, PAGE, &there) != 0 || there;
  errno = bound.refuse_with;
  return bound.refuse_with ? -1 : 0;
}

CASE(pinned_pages_prefer_their_node) {
  static const int nodes[] = {-1, 0, 3, 70, 1023};
  for (int i = 0; i < 5; i++)
    for (int refused = 0; refused < 2; refused++) { /* a refused mbind() does not make the call fail */
      fake_pinner fake;
      tdict_pinned_pages pages, small;
      tdict_pinner pinner = fake_pinner_init(&fake, NULL);
      memset(&bound, 0, sizeof bound);
      bound.refuse_with = refused ? EPERM : 0;
      pinner.node = nodes[i];
      td_ok(tdict_pinned_pages_get(&pinner, PAGE, &small, err));
      assert_int_equal(bound.count, 0); /* the driver allocates small blocks, so mbind() is not called */
      td_ok(tdict_pinned_pages_get(&pinner, 2 * HUGE_PAGE + PAGE, &pages, err));
      assert_int_equal(pages.way, TDICT_PINNED_REGISTERED);
      assert_int_equal(small.node, nodes[i]);
      assert_int_equal(pages.node, nodes[i]);
      assert_int_equal(bound.count, i > 0); /* without a node, mbind() is not called */
      assert_int_equal(atomic_load(&fake.unbounds), i > 0 && refused);
      if (i > 0) {
        assert_ptr_equal(bound.at, pages.data);
        assert_int_equal(bound.bytes, pages.bytes);
        assert_int_equal(bound.mode, MPOL_PREFERRED);
        assert_false(bound.touched);
        for (int k = 0; k < 1024; k++) assert_int_equal(bound.nodes[k / WORD] >> k % WORD & 1, k == nodes[i]);
      }
      if (i > 0 && refused) {
        assert_int_equal(fake.unbound_node, nodes[i]);
        assert_int_equal(fake.unbound_code, EPERM);
      }
      memset(pages.data, 0xA5, pages.bytes);
      tdict_pinned_pages_put(&pinner, &pages);
      tdict_pinned_pages_put(&pinner, &small);
    }
}

/* Asks the kernel for the node of each page. Every machine has node 0. */
CASE(pinned_pages_are_bound_by_the_system) {
  fake_pinner fake;
  tdict_pinned_pages pages;
  tdict_pinner pinner = fake_pinner_init(&fake, NULL);
  bound.real = true;
  pinner.node = 0;
  td_ok(tdict_pinned_pages_get(&pinner, 2 * HUGE_PAGE + PAGE, &pages, err));
  bool refused = atomic_load(&fake.unbounds) != 0;
  for (size_t at = 0; at < pages.bytes && !refused; at += PAGE) {
    unsigned long nodes[WORDS] = {0};
    int mode = -1;
    refused = __real_syscall(SYS_get_mempolicy, &mode, nodes, (unsigned long)1024, (char *)pages.data + at,
                             (long)MPOL_F_ADDR);
    if (refused) break;
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(nodes[0], 1);
  }
  tdict_pinned_pages_put(&pinner, &pages);
  if (refused) td_skip("the kernel refuses mbind() or get_mempolicy()");
}
