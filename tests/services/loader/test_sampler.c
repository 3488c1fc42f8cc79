/* Tests samplers of every kind, ranks, and errors. */
#include <math.h>

#include "support/test.h"
#include "tdict/loader.h"

static tdict_sampler *made(int64_t length, const tdict_sampler_options *o) {
  return td_made(sampler, tdict_sampler_create(length, o, &made, err));
}

CASE(sampler_is_deterministic) {
  double weights[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  tdict_sampler_options o = td_with(tdict_sampler_options, weights = weights, num_weights = 10, seed = 42);
  /* The indices are part of the interface: a saved state may be used on another machine. If they change, order_version
   * of saved states must change. The indices were computed by an implementation in Python. */
  static const int64_t known[4][5] = {
      {0, 1, 2, 3, 4},
      {1, 5, 3, 6, 8},
      {1, 3, 4, 7, 6},
      {8, 2, 8, 6, 7},
  };
  for (o.kind = TDICT_SAMPLER_SEQUENTIAL; o.kind <= TDICT_SAMPLER_WEIGHTED; o.kind++) {
    scoped_sampler a = made(10, &o), b = made(10, &o);
    for (int64_t epoch = 0; epoch < 3; epoch++)
      for (int64_t i = 9; i >= 0; i--) assert_int_equal(tdict_sampler_get(a, epoch, i), tdict_sampler_get(b, epoch, i));
    for (int64_t i = 0; i < 5; i++) assert_int_equal(tdict_sampler_get(a, 1, i), known[o.kind][i]);
    assert_int_equal(tdict_sampler_get(a, 0, 10), -1);
    assert_int_equal(tdict_sampler_get(a, 0, -1), -1);
    assert_int_equal(tdict_sampler_get(a, -1, 0), -1);
    tdict_sampler_release(tdict_sampler_retain(a));
  }
  tdict_sampler_release(NULL);
}

CASE(sampler_shuffles) {
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED);
  int same = 0, same_by_seed = 0;
  for (o.seed = 0; o.seed < 20; o.seed++) {
    scoped_sampler s = made(100, &o);
    tdict_sampler_options other = o;
    other.seed += 1000;
    scoped_sampler t = made(100, &other);
    for (int64_t epoch = 0; epoch < 4; epoch++) {
      bool seen[100] = {false};
      for (int64_t i = 0; i < 100; i++) {
        int64_t at = tdict_sampler_get(s, epoch, i);
        assert_in_range(at, 0, 99);
        assert_false(seen[at]);
        seen[at] = true;
        same += at == tdict_sampler_get(s, epoch + 1, i);
        same_by_seed += at == tdict_sampler_get(t, epoch, i);
      }
    }
  }
  assert_in_range(same, 40, 130); /* 8000 places, each equal with a probability of 1/100 */
  assert_in_range(same_by_seed, 40, 130);
}

CASE(sampler_draws_by_weight) {
  double weights[] = {0, 1, 0.25, 3, 0, 1e-300, 5.75};
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WEIGHTED, weights = weights,
                                    num_weights = 7, num_samples = 100000);
  tdict_sampler *s = made(7, &o);
  int64_t seen[7] = {0};
  assert_int_equal(tdict_sampler_length(s), 100000);
  for (int64_t i = 0; i < 100000; i++) seen[tdict_sampler_get(s, 3, i)]++;
  tdict_sampler_release(s);
  for (int i = 0; i < 7; i++) {
    int64_t wanted = (int64_t)(weights[i] * 10000);
    if (wanted == 0)
      assert_int_equal(seen[i], 0);
    else
      assert_in_range(seen[i], wanted - 600, wanted + 600);
  }
}

CASE(sampler_with_replacement_draws_evenly) {
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WITH_REPLACEMENT, num_samples = 70000);
  scoped_sampler s = made(7, &o);
  int64_t seen[7] = {0};
  for (int64_t i = 0; i < 70000; i++) seen[tdict_sampler_get(s, 0, i)]++;
  for (int i = 0; i < 7; i++) assert_in_range(seen[i], 9500, 10500);
}

/* With equal weights, WEIGHTED and WITH_REPLACEMENT use only the first number of a draw, but must differ. */
CASE(sampler_kinds_draw_independently) {
  double weights[100];
  for (int i = 0; i < 100; i++) weights[i] = 1;
  tdict_sampler_options o =
      td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WITH_REPLACEMENT, num_samples = 10000, seed = 5);
  tdict_sampler *even = made(100, &o);
  o.kind = TDICT_SAMPLER_WEIGHTED;
  o.weights = weights;
  o.num_weights = 100;
  tdict_sampler *weighted = made(100, &o);
  int same = 0;
  for (int64_t i = 0; i < 10000; i++) same += tdict_sampler_get(even, 1, i) == tdict_sampler_get(weighted, 1, i);
  td_release(weighted, even);
  assert_in_range(same, 40, 160); /* each pair of indices is equal with a probability of 1/100 */
}

CASE(sampler_splits_by_rank) {
  for (int64_t length = 1; length < 30; length += 4) {
    for (int world = 1; world < 6; world++) {
      for (int drop = 0; drop < 2; drop++) {
        int seen[30] = {0};
        int64_t each = -1;
        tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, seed = 5,
                                          world_size = world, drop_uneven = drop);
        for (o.rank = 0; o.rank < world; o.rank++) {
          scoped_sampler s = made(length, &o);
          if (each < 0) each = tdict_sampler_length(s);
          assert_int_equal(tdict_sampler_length(s), each);
          for (int64_t i = 0; i < each; i++) seen[tdict_sampler_get(s, 2, i)]++;
        }
        int64_t total = 0, missing = 0, twice = 0;
        for (int64_t i = 0; i < length; i++) {
          total += seen[i];
          missing += seen[i] == 0;
          twice += seen[i] > 1;
        }
        assert_int_equal(total, each * world);
        assert_int_equal(drop ? twice : missing, 0);
        assert_int_equal(each, drop ? length / world : (length + world - 1) / world);
      }
    }
  }
}

/* For every kind: rank r of n draws positions r, r + n, ... of the order of a single process. */
CASE(sampler_ranks_share_one_order) {
  double weights[23];
  for (int i = 0; i < 23; i++) weights[i] = i % 4;
  tdict_sampler_options o = td_with(tdict_sampler_options, seed = 7, weights = weights, num_weights = 23);
  for (o.kind = TDICT_SAMPLER_SEQUENTIAL; o.kind <= TDICT_SAMPLER_WEIGHTED; o.kind++) {
    o.rank = 0;
    o.world_size = 1;
    scoped_sampler whole = made(23, &o);
    for (o.world_size = 2; o.world_size < 6; o.world_size++) {
      for (o.rank = 0; o.rank < o.world_size; o.rank++) {
        scoped_sampler s = made(23, &o);
        for (int64_t epoch = 0; epoch < 3; epoch++)
          for (int64_t i = 0; i < tdict_sampler_length(s); i++)
            assert_int_equal(tdict_sampler_get(s, epoch, i),
                             tdict_sampler_get(whole, epoch, (i * o.world_size + o.rank) % 23));
      }
    }
  }
}

CASE(sampler_refuses) {
  tdict_sampler *s = NULL;
  td_fails(TDICT_EINVAL, "length is -1", tdict_sampler_create(-1, NULL, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_sampler_create(1, NULL, NULL, err));
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = 4);
  td_fails(TDICT_EINVAL, "kind is 4", tdict_sampler_create(1, &o, &s, err));
  o.kind = TDICT_SAMPLER_SHUFFLED;
  o.rank = 1;
  td_fails(TDICT_EINVAL, "rank is 1 of 1", tdict_sampler_create(1, &o, &s, err));
  o.rank = 0;
  o.num_samples = 2;
  td_fails(TDICT_EINVAL, "no index is drawn twice", tdict_sampler_create(1, &o, &s, err));
  o.kind = TDICT_SAMPLER_WITH_REPLACEMENT;
  td_fails(TDICT_EINVAL, "the length is 0", tdict_sampler_create(0, &o, &s, err));
  o.num_samples = -1;
  td_fails(TDICT_EINVAL, "num_samples is -1", tdict_sampler_create(1, &o, &s, err));
  o.num_samples = 0;
  o.kind = TDICT_SAMPLER_WEIGHTED;
  td_fails(TDICT_EINVAL, "weights is NULL", tdict_sampler_create(2, &o, &s, err));
  double weights[2] = {1, -1};
  o.weights = weights;
  td_fails(TDICT_EINVAL, "num_weights is 0, wanted the length 2", tdict_sampler_create(2, &o, &s, err));
  o.num_weights = 2;
  td_fails(TDICT_EINVAL, "num_weights is 2, wanted the length 3", tdict_sampler_create(3, &o, &s, err));
  td_fails(TDICT_EINVAL, "num_weights is 2, wanted the length 1", tdict_sampler_create(1, &o, &s, err));
  td_fails(TDICT_EINVAL, "weight 1 is -1", tdict_sampler_create(2, &o, &s, err));
  weights[0] = weights[1] = 0;
  td_fails(TDICT_EINVAL, "add up to 0", tdict_sampler_create(2, &o, &s, err));
  weights[1] = (double)INFINITY;
  td_fails(TDICT_EINVAL, "finite", tdict_sampler_create(2, &o, &s, err));
  assert_null(s);
}
