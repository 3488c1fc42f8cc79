/* Chi-square tests of counted draws. A test fails by chance with a probability below 10^-11, and below 10^-9 for all
 * tests of test_random.c together. Only the main thread calls these functions. */
#ifndef TDICT_TESTS_SERVICES_LOADER_STATISTICS_H
#define TDICT_TESTS_SERVICES_LOADER_STATISTICS_H

#include <math.h>

#include "support/test.h"

/* MIN_EXPECTED: cells that expect fewer draws are joined, because chi-square needs nearly normal counts in each cell.
 * MOST_SIGMAS: a normal variable is farther from its mean with a probability of 2.6 * 10^-12. */
#define MIN_EXPECTED 20.0
#define MOST_SIGMAS 7.0

/* Returns how many standard deviations chi-square is above its mean (Wilson and Hilferty, 1931). */
static inline double sigmas_of(double chi, double freedom) {
  double spread = 2 / (9 * freedom);
  return (cbrt(chi / freedom) - (1 - spread)) / sqrt(spread);
}
static inline void check_chi(const char *what, int64_t count, double chi, double freedom) {
  if (freedom < 1) return;
  double sigmas = sigmas_of(chi, freedom);
  if (td_option("--draws")) printf("%s, count %lld: %.2f sigma\n", what, (long long)count, sigmas);
  if (!(fabs(sigmas) < MOST_SIGMAS))
    fail_msg("%s, count %lld: chi-square is %g for %g degrees of freedom, %.1f sigma", what, (long long)count, chi,
             freedom, sigmas);
}
/* Compares the counts of cells with their probabilities, or with equal probabilities if `chances` is NULL. Joins
 * neighbouring cells until MIN_EXPECTED draws are expected. */
static inline void check_cells(const char *what, int64_t count, const int64_t *seen, const double *chances,
                               int64_t num_cells) {
  double total = 0, chi = 0, freedom = -1, expected = 0, joined = 0, left = 0;
  for (int64_t i = 0; i < num_cells; i++) left = total += (double)seen[i];
  for (int64_t i = 0; i < num_cells; i++) {
    double chance = chances ? chances[i] : 1 / (double)num_cells;
    if (chance == 0 && seen[i] > 0)
      fail_msg("%s, count %lld: a draw in cell %lld, whose probability is 0", what, (long long)count, (long long)i);
    expected += chance * total;
    joined += (double)seen[i];
    left -= chance * total;
    if (expected < MIN_EXPECTED || (left > 0 && left < MIN_EXPECTED)) continue;
    chi += (joined - expected) * (joined - expected) / expected;
    freedom++;
    expected = joined = 0;
  }
  check_chi(what, count, chi, freedom);
}
/* Compares a table of `side` by `side` cells (place and value), in which permutations of `count` elements were counted.
 * The sums of rows and columns are fixed, which reduces the degrees of freedom and the variance. */
static inline void check_table(const char *what, int64_t count, const int64_t *seen, const double *expected,
                               int64_t side) {
  double chi = 0;
  for (int64_t i = 0; i < side * side; i++) {
    assert_true(expected[i] >= MIN_EXPECTED / 2);
    chi += ((double)seen[i] - expected[i]) * ((double)seen[i] - expected[i]) / expected[i];
  }
  check_chi(what, count, chi * (double)(count - 1) / (double)count, (double)((side - 1) * (side - 1)));
}

#endif
