/* Replaces the memory allocator, so that addresses depend only on the calls of the program. In each size class, the
 * most recently freed block is reused first. The first bytes of a freed block are overwritten, so that a use after free
 * is likely to be detected. Thread rule: thread-safe. */
#include "dst/dst.h"

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NEW_BYTE = 0xcd, OLD_BYTE = 0xdd, MOST_FILLED = 4096, STEP = 16, NUM_SMALL = 64, NUM_CLASSES = 128 };
#define HEAP_START ((uintptr_t)0x100000000000)
#define HEAP_BYTES ((size_t)1 << 40)
#define PLACE_START ((uintptr_t)0x200000000000)
enum { MAGIC = 0x7d1c, STACK_BYTES = 1 << 20, PAGE = 4096 };

/* The 16 bytes before the address that malloc() returns. */
typedef struct header {
  uint16_t magic, class;
  uint32_t offset; /* from the start of the block to the address, divided by STEP */
  size_t bytes;
} header;
_Static_assert(sizeof(header) == STEP, "addresses are multiples of 16");
typedef struct block {
  struct block *next;
} block;

static int heap_lock; /* guards: all variables below */
static uintptr_t heap_end, place_end = PLACE_START;
static block *free_blocks[NUM_CLASSES], *free_stacks;
static size_t num_live;

static void lock_heap(void) {
  while (__atomic_exchange_n(&heap_lock, 1, __ATOMIC_ACQUIRE)) DST_REAL(sched_yield)();
}
static void unlock_heap(void) { __atomic_store_n(&heap_lock, 0, __ATOMIC_RELEASE); }

/* ---- blocks ---- */

/* Returns the size class of an allocation. Small classes are multiples of STEP, other classes are powers of two. */
static unsigned class_of(size_t bytes, size_t *class_bytes) {
  unsigned shift = 11;
  const size_t steps = (bytes + STEP - 1) / STEP;
  if (steps < NUM_SMALL) {
    *class_bytes = steps * STEP;
    return (unsigned)steps;
  }
  while (((size_t)1 << shift) < bytes) shift++;
  *class_bytes = (size_t)1 << shift;
  return NUM_SMALL + shift - 11;
}

/* Returns a block, and sets *is_zero if its bytes are zero. Call with the lock held. */
static char *take_block(unsigned class, size_t class_bytes, bool *is_zero) {
  block *b = free_blocks[class];
  *is_zero = !b;
  if (b) {
    free_blocks[class] = b->next;
    return (char *)b;
  }
  if (!heap_end) {
    void *heap = DST_REAL(mmap)((void *)HEAP_START, HEAP_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (heap != (void *)HEAP_START) abort();
    heap_end = HEAP_START;
  }
  if (class_bytes > HEAP_START + HEAP_BYTES - heap_end) return NULL;
  char *start = (char *)heap_end;
  heap_end += class_bytes;
  return start;
}

static void *allocate(size_t bytes, size_t alignment, bool clears) {
  bool is_zero;
  size_t class_bytes;
  const size_t extra = alignment > STEP ? alignment : 0;
  if (bytes > HEAP_BYTES / 4 || extra > HEAP_BYTES / 4) {
    errno = ENOMEM;
    return NULL;
  }
  lock_heap();
  const unsigned class = class_of(bytes + STEP + extra, &class_bytes);
  char *start = take_block(class, class_bytes, &is_zero);
  num_live += start != NULL;
  unlock_heap();
  if (!start) {
    errno = ENOMEM;
    return NULL;
  }
  char *at = start + STEP;
  if (extra) at = (char *)(((uintptr_t)at + alignment - 1) / alignment * alignment);
  *(header *)(void *)(at - STEP) = (header){MAGIC, (uint16_t) class, (uint32_t)((size_t)(at - start) / STEP), bytes};
  if (clears && !is_zero) memset(at, 0, bytes);
  if (!clears) memset(at, NEW_BYTE, bytes < MOST_FILLED ? bytes : MOST_FILLED);
  return at;
}

static header *header_of(void *at) {
  header *h = (header *)(void *)((char *)at - STEP);
  if (h->magic != MAGIC) dst_die("free or realloc of an address that is not an allocated block");
  return h;
}

/* Returns true if the thread has given up the token permanently. It must then not change the heap. */
static bool is_leaving(void) { return dst_the.is_on && dst_self < 0; }

static void release(void *at) {
  if (!at || is_leaving()) return;
  header *h = header_of(at);
  const unsigned class = h->class;
  block *b = (block *)(void *)((char *)at - (size_t)h->offset * STEP);
  memset(at, OLD_BYTE, h->bytes < MOST_FILLED ? h->bytes : MOST_FILLED);
  h->magic = 0;
  lock_heap();
  b->next = free_blocks[class];
  free_blocks[class] = b;
  num_live--;
  unlock_heap();
}

void *dst_alloc(size_t bytes) { return allocate(bytes, STEP, false); }
void dst_free(void *at) { release(at); }

DST_EXPORT uint64_t dst_scheduler_num_blocks(void);
uint64_t dst_scheduler_num_blocks(void) { return num_live; }

/* ---- the functions of libc ---- */

static __thread int num_spared;
DST_EXPORT void dst_scheduler_spare(bool is_spared);
void dst_scheduler_spare(bool is_spared) { num_spared += is_spared ? 1 : -1; }

static bool fails(void) {
  if (num_spared || !dst_active() || !dst_call_fails(DST_ALLOC)) return false;
  errno = ENOMEM;
  return true;
}

DST_EXPORT void *malloc(size_t bytes) { return fails() ? NULL : allocate(bytes, STEP, false); }
DST_EXPORT void free(void *at) {
  const int code = errno;
  release(at);
  errno = code;
}

DST_EXPORT void *calloc(size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  return fails() ? NULL : allocate(total, STEP, true);
}

DST_EXPORT void *realloc(void *old, size_t bytes) {
  if (fails()) return NULL;
  void *at = allocate(bytes, STEP, false);
  if (!old || !at) return at;
  const size_t before = header_of(old)->bytes;
  memcpy(at, old, before < bytes ? before : bytes);
  release(old);
  return at;
}

DST_EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1)) return EINVAL;
  void *at = fails() ? NULL : allocate(bytes, alignment, false);
  if (!at) return ENOMEM;
  *out = at;
  return 0;
}

DST_EXPORT void *aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? NULL : allocate(bytes, alignment, false);
}
DST_EXPORT void *memalign(size_t alignment, size_t bytes) { return aligned_alloc(alignment, bytes); }
DST_EXPORT size_t malloc_usable_size(void *at) { return at ? header_of(at)->bytes : 0; }

/* ---- mappings ---- */

/* Returns an address for a mapping. Addresses are not reused. */
static void *next_place(size_t bytes) {
  lock_heap();
  void *at = (void *)place_end;
  place_end += (bytes + PAGE - 1) / PAGE * PAGE + 16 * (uintptr_t)PAGE;
  unlock_heap();
  return at;
}

DST_EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (!dst_active()) return DST_REAL(mmap)(at, bytes, protection, flags, fd, offset);
  if (!(flags & MAP_FIXED) && fails()) return MAP_FAILED;
  if (!at) {
    at = next_place(bytes);
    flags |= MAP_FIXED_NOREPLACE;
  }
  return DST_REAL(mmap)(at, bytes, protection, flags, fd, offset);
}

void *dst_stack_take(size_t *bytes) {
  *bytes = STACK_BYTES;
  if (free_stacks) {
    void *stack = free_stacks;
    free_stacks = free_stacks->next;
    return stack;
  }
  void *stack = DST_REAL(mmap)(next_place(STACK_BYTES), STACK_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (stack == MAP_FAILED) dst_die("no memory for the stack of a thread");
  return stack;
}

void dst_stack_give(void *stack) {
  block *b = stack;
  b->next = free_stacks;
  free_stacks = b;
}
