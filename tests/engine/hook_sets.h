/* Types with each subset of the hooks pin_memory, to_device and flatten, for tests of transfers and loaders. */
#ifndef TDICT_TESTS_ENGINE_HOOK_SETS_H
#define TDICT_TESTS_ENGINE_HOOK_SETS_H

#include "pair.h"

enum { PINS = 1, MOVES = 2, FLATTENS = 4, NUM_HOOK_SETS = 8 };
static const tdict_type hook_sets[NUM_HOOK_SETS] = {
    PAIR_TYPE(.clone = NULL),
    PAIR_TYPE(.pin_memory = pair_pin),
    PAIR_TYPE(.to_device = pair_move),
    PAIR_TYPE(.pin_memory = pair_pin, .to_device = pair_move),
    PAIR_TYPE(.flatten = pair_flatten, .unflatten = pair_unflatten),
    PAIR_TYPE(.pin_memory = pair_pin, .flatten = pair_flatten, .unflatten = pair_unflatten),
    PAIR_TYPE(.to_device = pair_move, .flatten = pair_flatten, .unflatten = pair_unflatten),
    PAIR_TYPE(.pin_memory = pair_pin, .to_device = pair_move, .flatten = pair_flatten, .unflatten = pair_unflatten),
};
static inline bool can_move(int set) { return set & (MOVES | FLATTENS); }

/* Checks how often the hooks of `count` objects of type hook_sets[set] were called. `pinned` and `moved` say whether
 * the call pins and moves the objects. */
static inline void check_hook_calls(probe *p, int set, int count, bool pinned, bool moved) {
  const bool by_flatten = set & FLATTENS && (moved ? !(set & MOVES) : pinned && !(set & PINS));
  assert_int_equal(atomic_load(&p->pins), pinned && set & PINS ? count : 0);
  assert_int_equal(atomic_load(&p->moves), moved && set & MOVES ? count : 0);
  assert_int_equal(atomic_load(&p->flattens), by_flatten ? count : 0);
  assert_int_equal(atomic_load(&p->unflattens), by_flatten ? count : 0);
}

#endif
