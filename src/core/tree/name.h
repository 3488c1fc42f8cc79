/* A key as two words of its text and a hash, so that short keys need no loop. Borrows the text. Pure functions. */
#ifndef TDICT_CORE_TREE_NAME_H
#define TDICT_CORE_TREE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A rarely called function. It is not inlined, so that its frequent caller needs fewer registers. */
#define TDICT_COLD __attribute__((noinline, cold))

enum { TDICT_WORD_BYTES = 8, TDICT_SHORT_NAME = 16 }; /* the two words of a tdict_name hold all bytes of a short name */

typedef struct tdict_name {
  const char *text; /* not terminated by 0 */
  size_t length;
  /* first: the first 8 bytes, padded with 0. last: the last 8 bytes if the name has more than 8 bytes, else 0 */
  uint64_t first, last;
  uint32_t hash;
} tdict_name;

/* Loads 8 bytes as a little-endian word, so that shifts and bit counts mean the same on every machine. */
static inline uint64_t tdict_word_load(const char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/* Loads 0 to 7 bytes as a little-endian word, padded with 0. Reads no byte beyond `length`. */
static inline uint64_t tdict_word_load_part(const char *bytes, size_t length) {
  if (length >= 4) { /* two loads that overlap */
    uint32_t low, high;
    memcpy(&low, bytes, sizeof low);
    memcpy(&high, bytes + length - 4, sizeof high);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    low = __builtin_bswap32(low);
    high = __builtin_bswap32(high);
#endif
    return low | (uint64_t)high << 8 * (length - 4);
  }
  if (length == 0) return 0;
  const unsigned char *b = (const unsigned char *)bytes;
  return b[0] | (uint64_t)b[length / 2] << 8 * (length / 2) | (uint64_t)b[length - 1] << 8 * (length - 1);
}

/* Returns a mask of the first `length` bytes of a word; `length` is 1 to 8. */
static inline uint64_t tdict_word_mask(size_t length) { return ~(uint64_t)0 >> (64 - 8 * length); }

/* Finds the dots and backslashes in a word. In the result, the top bit of byte i is set if byte i of `word` is a dot or
 * a backslash. Only the lowest set bit is reliable, because the subtraction borrows from the bytes above that byte. */
static inline uint64_t tdict_word_stops(uint64_t word) {
  const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
  return (((word ^ ones * '.') - ones) | ((word ^ ones * '\\') - ones)) & ~word & tops;
}

__extension__ typedef unsigned __int128 tdict_word_pair;
/* Multiplies two words and XORs the halves of the product, which depend on many bits of both. */
static inline uint64_t tdict_hash_fold(uint64_t a, uint64_t b) {
  tdict_word_pair product = (tdict_word_pair)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}
static inline uint64_t tdict_hash_begin(size_t length) { return length ^ 0x5851f42d4c957f2du; }
static inline uint64_t tdict_hash_mix(uint64_t hash, uint64_t first, uint64_t last) {
  return tdict_hash_fold(tdict_hash_fold(hash ^ first, last ^ 0x9e3779b97f4a7c15u), 0xd6e8feb86659fd93u);
}

/* The next two handle long names, without a pointer to a tdict_name, which can stay in registers. */
uint32_t tdict_name_hash_long(const char *text, size_t length);
/* Reads a key like tdict_name_read(). If the key has a backslash, the name has length 0. */
tdict_name tdict_name_read_long(const char *text, const char *end);

static inline void tdict_name_words(tdict_name *name) {
  const bool part = name->length < TDICT_WORD_BYTES;
  name->first = part ? tdict_word_load_part(name->text, name->length) : tdict_word_load(name->text);
  name->last = name->length > TDICT_WORD_BYTES ? tdict_word_load(name->text + name->length - 8) : 0;
}

/* Sets the hash of a name. The text, length and words must be set. */
static inline void tdict_name_hash(tdict_name *name) {
  name->hash = name->length > TDICT_SHORT_NAME
                   ? tdict_name_hash_long(name->text, name->length)
                   : (uint32_t)tdict_hash_mix(tdict_hash_begin(name->length), name->first, name->last);
}

static inline tdict_name tdict_name_of(const char *text, size_t length) {
  tdict_name name = {text, length, 0, 0, 0};
  tdict_name_words(&name);
  tdict_name_hash(&name);
  return name;
}

/* Reads the key at `text`. Returns false for an empty key or a backslash, which tdict_path_next() handles. */
static inline bool tdict_name_read(tdict_name *name, const char *text, const char *end) {
  size_t left = (size_t)(end - text), length = left;
  uint64_t first = left >= TDICT_WORD_BYTES ? tdict_word_load(text) : tdict_word_load_part(text, left);
  uint64_t stops = tdict_word_stops(first);
  if (stops) {
    length = (size_t)(unsigned)__builtin_ctzll(stops) / 8;
    if (length == 0 || text[length] != '.') return false;
    first &= tdict_word_mask(length);
  } else if (left > TDICT_WORD_BYTES) {
    *name = tdict_name_read_long(text, end);
    return name->length != 0;
  } else if (left == 0) {
    return false;
  }
  name->text = text;
  name->length = length;
  name->first = first;
  name->last = 0;
  name->hash = (uint32_t)tdict_hash_mix(tdict_hash_begin(length), first, 0);
  return true;
}

/* Returns true if the bytes at `stored` begin with the name. At least 8 bytes at `stored` must be readable. */
static inline bool tdict_name_is(const tdict_name *name, const char *stored) {
  if (name->length > TDICT_WORD_BYTES) return memcmp(stored, name->text, name->length) == 0;
  return name->length == 0 || (tdict_word_load(stored) & tdict_word_mask(name->length)) == name->first;
}

/* Copies the name to `to`. At least 8 bytes at `to` must be writable, even if the name is shorter. */
static inline void tdict_name_copy(const tdict_name *name, char *to) {
  if (name->length > TDICT_SHORT_NAME) {
    memcpy(to, name->text, name->length);
    return;
  }
  uint64_t first = name->first, last = name->last;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  first = __builtin_bswap64(first);
  last = __builtin_bswap64(last);
#endif
  memcpy(to, &first, sizeof first);
  if (name->length > TDICT_WORD_BYTES) memcpy(to + name->length - 8, &last, sizeof last);
}

/* Makes the name of `text`: a prefix of `mark` bytes, up to 7, and a key of `length` bytes, up to 8. Uses the words of
 * both parts instead of the text, because a load of bytes that were just stored would stall. */
static inline tdict_name tdict_name_join(const char *text, uint64_t prefix, size_t mark, uint64_t key, size_t length) {
  tdict_name name = {text, mark + length, 0, 0, 0};
  const unsigned by = (unsigned)mark * 8;
  const uint64_t high = mark ? key >> (64 - by) : 0;
  name.first = prefix | key << by;
  if (name.length > TDICT_WORD_BYTES) {
    const unsigned over = (unsigned)(name.length - TDICT_WORD_BYTES) * 8;
    name.last = name.first >> over | high << (64 - over);
  }
  tdict_name_hash(&name);
  return name;
}

#endif
