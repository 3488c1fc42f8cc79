/* Hashes names of more than 16 bytes, and reads keys of more than 8. Borrows the text. Threads: see name.h. */
#include "core/tree/name.h"

/* Mixes in 16 bytes at a time; the last 16 bytes can overlap the bytes mixed in before. */
uint32_t tdict_name_hash_long(const char *text, size_t length) {
  uint64_t hash = tdict_hash_begin(length);
  for (size_t at = 0; at + TDICT_SHORT_NAME < length; at += TDICT_SHORT_NAME)
    hash = tdict_hash_mix(hash, tdict_word_load(text + at), tdict_word_load(text + at + 8));
  text += length - TDICT_SHORT_NAME;
  return (uint32_t)tdict_hash_mix(hash, tdict_word_load(text), tdict_word_load(text + 8));
}

tdict_name tdict_name_read_long(const char *text, const char *end) {
  const size_t left = (size_t)(end - text);
  size_t length = left;
  for (size_t at = 0; left - at > TDICT_WORD_BYTES;) {
    /* The last word overlaps the one before: a dot or backslash in both would have ended the search. */
    at = left - at >= (size_t)2 * TDICT_WORD_BYTES ? at + TDICT_WORD_BYTES : left - TDICT_WORD_BYTES;
    uint64_t stops = tdict_word_stops(tdict_word_load(text + at));
    if (!stops) continue;
    length = at + (size_t)(unsigned)__builtin_ctzll(stops) / 8;
    if (text[length] != '.') length = 0; /* a backslash: the caller reads the key byte by byte */
    break;
  }
  return tdict_name_of(text, length);
}
