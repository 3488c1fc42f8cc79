/* From one simulated device to another, and trees whose leaves are spread over both and the host. */
#include "trees.h"

/* The same context, seen from each of its two devices. */
typedef struct pair {
  world zero, one;
} pair;
static pair open_pair(void) {
  tdict_context_options o = tdict_context_options_default();
  tdict_sim_options sim = tdict_sim_options_default();
  sim.num_devices = 2;
  o.sim = &sim;
  o.staging_bytes = STAGING;
  pair p = {.zero = world_over(td_context(&o))};
  p.one = p.zero;
  p.one.device = tdict_sim(1);
  p.one.memory = tdict_device_memory(p.zero.c, tdict_sim(1));
  p.one.raw = raw_open(p.zero.c, tdict_sim(1));
  return p;
}
static void close_pair(pair *p) {
  raw_close(p->one.raw);
  close_world(&p->zero);
}

SIM_CASE(transfer_between_two_devices) {
  pair p = open_pair();
  const world *w = &p.zero;
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    tdict_tree *src = make_tree(w, (tree_kind)kind), *one = to_device(w, src, tdict_sim(1));
    check_device(one, tdict_sim(1));
    check_tree(&p.one, src, one);
    for (int i = kind; i < NUM_WAYS; i += 7) {
      const way v = way_at(i);
      poison(w, w->memory, line_bytes(src));
      tdict_tree *zero = move_tree(w, one, tdict_sim(0), &v);
      check_device(zero, tdict_sim(0));
      check_tree(w, src, zero);
      spoil_tree(&p.one, one);
      copy_tree(w, zero, one, &v); /* and back into what was there */
      check_tree(&p.one, src, one);
      spoil_tree(w, zero);
      tdict_release(zero);
    }
    tdict_release(one);
    tdict_release(src);
  }
  close_pair(&p);
}

/* Leaves of both devices and of the host in turn; those that are there stay. */
static void move_mixed(const pair *p, tree_kind kind) {
  const world *w = &p->zero;
  tdict_tree *src = make_tree(w, kind), *mixed = new_tree(), *want = new_tree();
  tdict_tree *parts[] = {src, to_device(w, src, tdict_sim(1)), to_device(w, src, tdict_sim(0))};
  leaf_list lists[] = {list_entries(parts[0]), list_entries(parts[1]), list_entries(parts[2])};
  for (size_t i = 0; i < lists[0].count; i++) {
    if (!lists[0].tensors[i]) continue;
    td_ok(tdict_set(mixed, lists[0].paths[i], lists[i % 3].tensors[i], err));
    td_ok(tdict_set(want, lists[0].paths[i], lists[0].tensors[i], err));
  }
  for (int i = 0; i < NUM_WAYS; i += 11) {
    const way v = way_at(i);
    tdict_tree *at_zero = move_tree(w, mixed, tdict_sim(0), &v), *at_one = move_tree(w, mixed, tdict_sim(1), &v);
    tdict_tree *home = move_tree(w, mixed, tdict_cpu(), &v);
    check_device(at_zero, tdict_sim(0));
    check_device(at_one, tdict_sim(1));
    check_tree(w, want, at_zero);
    check_tree(&p->one, want, at_one);
    check_tree(w, want, home);
    tdict_release(at_zero);
    tdict_release(at_one);
    tdict_release(home);
  }
  for (int i = 0; i < 3; i++) {
    free_list(&lists[i]);
    tdict_release(parts[i]);
  }
  tdict_release(mixed);
  tdict_release(want);
}
SIM_CASE(transfer_from_several_devices) {
  pair p = open_pair();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) move_mixed(&p, (tree_kind)kind);
  close_pair(&p);
}
