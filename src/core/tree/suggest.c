/* Suggests keys for a message about a missing key. Owns nothing. Thread rule: see suggest.h. */
#include "core/tree/suggest.h"

#include <ctype.h>
#include <stdio.h>

/* Only the MOST_ALIKE best of MOST_COMPARED keys by a cheap measure are compared by edit distance, which is slow. */
enum { MOST_COMPARED = 1024, MOST_ALIKE = 8, MOST_SHOWN = 5, COMPARED_BYTES = 24, KEY_BYTES = 32 };

typedef struct candidate {
  const tdict_key *key;
  int rank; /* smaller is more similar */
} candidate;
typedef struct candidates {
  candidate at[MOST_ALIKE];
  int count;
} candidates;

static bool equal_ignoring_case(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* Returns the length of the longer name without common ends, at most 1000. Ignores case. Costs one pass. */
static int count_middle_bytes(const tdict_name *a, const tdict_key *b) {
  const size_t shorter = a->length < b->length ? a->length : b->length;
  const size_t longer = a->length < b->length ? b->length : a->length;
  size_t head = 0, tail = 0;
  while (head < shorter && equal_ignoring_case(a->text[head], b->name[head])) head++;
  while (tail < shorter - head && equal_ignoring_case(a->text[a->length - 1 - tail], b->name[b->length - 1 - tail]))
    tail++;
  const size_t rest = longer - head - tail;
  return rest < 1000 ? (int)rest : 1000;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* Returns the Levenshtein distance of the first COMPARED_BYTES bytes of two names. Ignores case. */
static int edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
  int row[COMPARED_BYTES + 1];
  const int a_length = (int)(a_bytes < COMPARED_BYTES ? a_bytes : COMPARED_BYTES);
  const int b_length = (int)(b_bytes < COMPARED_BYTES ? b_bytes : COMPARED_BYTES);
  for (int j = 0; j <= b_length; j++) row[j] = j;
  for (int i = 1; i <= a_length; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= b_length; j++) {
      const int replaced = diagonal + !equal_ignoring_case(a[i - 1], b[j - 1]);
      diagonal = row[j];
      row[j] = min_int(replaced, min_int(row[j], row[j - 1]) + 1);
    }
  }
  return row[b_length];
}

/* Inserts a candidate by rank, equal ranks in order. A full list drops its last one. */
static void insert_candidate(candidates *best, candidate next) {
  int at = best->count;
  if (at == MOST_ALIKE && best->at[at - 1].rank <= next.rank) return;
  if (at == MOST_ALIKE)
    at--;
  else
    best->count++;
  for (; at > 0 && best->at[at - 1].rank > next.rank; at--) best->at[at] = best->at[at - 1];
  best->at[at] = next;
}

/* Sorts by position in the table, so that candidates of equal distance keep the order of the keys. */
static void sort_in_key_order(candidates *all) {
  for (int i = 1; i < all->count; i++)
    for (int at = i; at > 0 && all->at[at - 1].key > all->at[at].key; at--) {
      const candidate moved = all->at[at];
      all->at[at] = all->at[at - 1];
      all->at[at - 1] = moved;
    }
}

static candidates find_nearest(const tdict_keys *keys, const tdict_name *name) {
  candidates alike = {.count = 0}, nearest = {.count = 0};
  int compared = 0;
  /* Choose by the cheap measure. */
  for (uint32_t i = 0; i < keys->num_slots && compared < MOST_COMPARED; i++) {
    const tdict_key *key = &keys->slots[i];
    if (!key->name) continue;
    compared++;
    insert_candidate(&alike, (candidate){key, count_middle_bytes(name, key)});
  }
  /* Rank by edit distance. */
  sort_in_key_order(&alike);
  for (int i = 0; i < alike.count; i++) {
    const tdict_key *key = alike.at[i].key;
    insert_candidate(&nearest, (candidate){key, edit_distance(name->text, name->length, key->name, key->length)});
  }
  return nearest;
}

char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes) {
  /* Find the keys. A slash in the name suggests a wrong separator. */
  const candidates best = find_nearest(keys, name);
  const int count = min_int(best.count, MOST_SHOWN);
  int shown = 0;
  bool slash = false;
  for (size_t i = 0; i < name->length; i++) slash = slash || name->text[i] == '/';
  size_t at = (size_t)snprintf(buffer, bytes, "%s%s", slash ? "; paths use dots, not slashes" : "",
                               count ? "; keys: " : "; the tree has no keys");
  for (; shown < count && at < bytes; shown++) {
    char text[KEY_BYTES + 8];
    const int cut = best.at[shown].key->length > KEY_BYTES;
    const size_t length = (size_t)snprintf(text, sizeof text, "%s%.*s%s", shown ? ", " : "", KEY_BYTES - 3 * cut,
                                           best.at[shown].key->name, cut ? "..." : "");
    /* Leave space for the number of keys that are left out. */
    if (at + length + sizeof ", ... (4294967295 more)" > bytes) break;
    at += (size_t)snprintf(buffer + at, bytes - at, "%s", text);
  }
  const uint32_t left_out = keys->num_live - (uint32_t)shown;
  if (left_out && at < bytes) snprintf(buffer + at, bytes - at, ", ... (%u more)", left_out);
  return buffer;
}
