/* What a message says about a key that is not there. See suggest.h. */
#include "tree/suggest.h"

#include <ctype.h>
#include <stdio.h>

enum { MOST_COMPARED = 256, MOST_SHOWN = 5, COMPARED_BYTES = 24, KEY_BYTES = 32 };

typedef struct candidate {
  const tdict_key *key;
  int distance;
} candidate;

static int smaller(int a, int b) { return a < b ? a : b; }

/* Levenshtein's distance of the first bytes of two names, in which case does not count. */
static int distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
  int row[COMPARED_BYTES + 1];
  const int a_length = (int)(a_bytes < COMPARED_BYTES ? a_bytes : COMPARED_BYTES);
  const int b_length = (int)(b_bytes < COMPARED_BYTES ? b_bytes : COMPARED_BYTES);
  for (int j = 0; j <= b_length; j++) row[j] = j;
  for (int i = 1; i <= a_length; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= b_length; j++) {
      const bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
      const int replaced = diagonal + !same;
      diagonal = row[j];
      row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
    }
  }
  return row[b_length];
}

/* Keeps the nearest candidates in order; of two that are as near, the one that came first. */
static void keep_nearest(candidate *best, int *count, candidate next) {
  int at = *count;
  if (at == MOST_SHOWN && best[at - 1].distance <= next.distance) return;
  if (at == MOST_SHOWN)
    at--;
  else
    ++*count;
  for (; at > 0 && best[at - 1].distance > next.distance; at--) best[at] = best[at - 1];
  best[at] = next;
}

char *tdict_suggest(const tdict_keys *keys, const tdict_name *name, char *buffer, size_t bytes) {
  candidate best[MOST_SHOWN];
  int count = 0, shown = 0, compared = 0;
  bool slash = false;
  for (size_t i = 0; i < name->length; i++) slash = slash || name->text[i] == '/';
  for (uint32_t i = 0; i < keys->num_slots && compared < MOST_COMPARED; i++) {
    const tdict_key *key = &keys->slots[i];
    if (!key->name) continue;
    compared++;
    keep_nearest(best, &count, (candidate){key, distance(name->text, name->length, key->name, key->length)});
  }
  size_t at = (size_t)snprintf(buffer, bytes, "%s%s", slash ? "; paths use dots, not slashes" : "",
                               count ? "; keys: " : "; the tree has no keys");
  for (; shown < count && at < bytes; shown++) {
    char text[KEY_BYTES + 8];
    const int cut = best[shown].key->length > KEY_BYTES;
    const size_t length = (size_t)snprintf(text, sizeof text, "%s%.*s%s", shown ? ", " : "", KEY_BYTES - 3 * cut,
                                           best[shown].key->name, cut ? "..." : "");
    if (at + length + sizeof ", ... (4294967295 more)" > bytes) break;
    at += (size_t)snprintf(buffer + at, bytes - at, "%s", text);
  }
  const uint32_t left_out = keys->num_live - (uint32_t)shown;
  if (left_out && at < bytes) snprintf(buffer + at, bytes - at, ", ... (%u more)", left_out);
  return buffer;
}
