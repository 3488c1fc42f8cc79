/* Implements the functions that code compiled with -fsanitize=thread calls. The program is linked with this library
 * instead of ThreadSanitizer's library. Each atomic access becomes a decision unless DST_ATOMIC is 0. Plain accesses
 * are not decisions, because the program must have no data races. Other runs check this with ThreadSanitizer. Every
 * access is sequentially consistent. */
#include "dst/dst.h"

#include <string.h>

/* The compiler generates calls to these functions, whose names begin with two underscores. */
#define NAMED(name) DST_EXPORT __attribute__((used)) name
#define DECIDE(call) \
  if (dst_the.is_atomic && dst_active()) dst_decide(call, DST_SITE)

#define READ_MODIFY_WRITE(bits, type, name)                                            \
  type __tsan_atomic##bits##_##name(volatile type *at, type value, int order);         \
  NAMED(type) __tsan_atomic##bits##_##name(volatile type *at, type value, int order) { \
    (void)order;                                                                       \
    DECIDE("atomic " #name);                                                           \
    return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                               \
  }
#define COMPARE_EXCHANGE(bits, type, name, may_fail)                                                          \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value, int order, \
                                                    int failed_order);                                        \
  NAMED(int)                                                                                                  \
  __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value, int order,     \
                                                int failed_order) {                                           \
    (void)order, (void)failed_order;                                                                          \
    DECIDE("atomic compare_exchange");                                                                        \
    if (may_fail && dst_the.is_atomic && dst_active() && dst_call_fails(DST_SPURIOUS)) {                      \
      *expected = __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                      \
      return 0;                                                                                               \
    }                                                                                                         \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
  }
/* clang generates calls to this form, which returns the old value. */
#define COMPARE_EXCHANGE_VALUE(bits, type)                                                                 \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, int order, \
                                                  int failed_order);                                       \
  NAMED(type)                                                                                              \
  __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, int order,      \
                                             int failed_order) {                                           \
    (void)order, (void)failed_order;                                                                       \
    DECIDE("atomic compare_exchange");                                                                     \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
    return expected;                                                                                       \
  }
#define ACCESSES(bits, type)                                                             \
  type __tsan_atomic##bits##_load(const volatile type *at, int order);                   \
  NAMED(type) __tsan_atomic##bits##_load(const volatile type *at, int order) {           \
    (void)order;                                                                         \
    DECIDE("atomic load");                                                               \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                        \
  }                                                                                      \
  void __tsan_atomic##bits##_store(volatile type *at, type value, int order);            \
  NAMED(void) __tsan_atomic##bits##_store(volatile type *at, type value, int order) {    \
    (void)order;                                                                         \
    DECIDE("atomic store");                                                              \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                      \
  type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order);         \
  NAMED(type) __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) { \
    (void)order;                                                                         \
    DECIDE("atomic exchange");                                                           \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                             \
  }                                                                                      \
  READ_MODIFY_WRITE(bits, type, fetch_add)                                               \
  READ_MODIFY_WRITE(bits, type, fetch_sub)                                               \
  READ_MODIFY_WRITE(bits, type, fetch_and)                                               \
  READ_MODIFY_WRITE(bits, type, fetch_or)                                                \
  READ_MODIFY_WRITE(bits, type, fetch_xor)                                               \
  READ_MODIFY_WRITE(bits, type, fetch_nand)                                              \
  COMPARE_EXCHANGE(bits, type, strong, false)                                            \
  COMPARE_EXCHANGE(bits, type, weak, true)                                               \
  COMPARE_EXCHANGE_VALUE(bits, type)

ACCESSES(8, uint8_t)
ACCESSES(16, uint16_t)
ACCESSES(32, uint32_t)
ACCESSES(64, uint64_t)

void __tsan_atomic_thread_fence(int order);
NAMED(void) __tsan_atomic_thread_fence(int order) {
  (void)order;
  DECIDE("atomic fence");
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order);
NAMED(void) __tsan_atomic_signal_fence(int order) { (void)order; }

/* ---- plain accesses ---- */

#define PLAIN(name)    \
  void name(void *at); \
  NAMED(void) name(void *at) { (void)at; }
#define PLAIN_SIZES(kind) \
  PLAIN(__tsan_##kind##1) \
  PLAIN(__tsan_##kind##2) \
  PLAIN(__tsan_##kind##4) \
  PLAIN(__tsan_##kind##8) \
  PLAIN(__tsan_##kind##16)
PLAIN_SIZES(read)
PLAIN_SIZES(write)
PLAIN_SIZES(unaligned_read)
PLAIN_SIZES(unaligned_write)
PLAIN_SIZES(volatile_read)
PLAIN_SIZES(volatile_write)
PLAIN_SIZES(read_write)
PLAIN(__tsan_func_entry)
PLAIN(__tsan_vptr_read)

void __tsan_init(void);
NAMED(void) __tsan_init(void) {}
void __tsan_func_exit(void);
NAMED(void) __tsan_func_exit(void) {}
void __tsan_read_range(void *at, size_t bytes);
NAMED(void) __tsan_read_range(void *at, size_t bytes) { (void)at, (void)bytes; }
void __tsan_write_range(void *at, size_t bytes);
NAMED(void) __tsan_write_range(void *at, size_t bytes) { (void)at, (void)bytes; }
void __tsan_vptr_update(void **at, void *value);
NAMED(void) __tsan_vptr_update(void **at, void *value) { (void)at, (void)value; }
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
NAMED(void *) __tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes);
NAMED(void *) __tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
void *__tsan_memset(void *to, int byte, size_t bytes);
NAMED(void *) __tsan_memset(void *to, int byte, size_t bytes) { return memset(to, byte, bytes); }
