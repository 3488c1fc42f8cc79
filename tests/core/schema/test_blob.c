/* Tests reading blobs from untrusted sources: valid, malformed, truncated and randomly changed blobs. */
#include "rig.h"

#define HEAD "tdsc\1\0\0\0"
#define BLOB(text) text, sizeof text - 1
#define F32 "\2\x20\1\0"

CASE(schema_read_returns_what_was_written) {
  scoped_schema s = rig_read(rig_bytes, sizeof rig_bytes);
  size_t bytes;
  uint8_t *blob = rig_blob(s, &bytes);
  assert_int_equal(bytes, sizeof rig_bytes);
  assert_memory_equal(blob, rig_bytes, bytes);
  free(blob);
  tdict_schema_release(s);
  static const char large[] = HEAD "\1\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0"; /* 2^63 - 1 */
  s = rig_read(BLOB(large));
  assert_int_equal(tdict_schema_get_info(s).batch_size[0], INT64_MAX);
}

static const struct {
  const char *blob;
  size_t bytes;
  const char *text;
} attacks[] = {
    {BLOB(""), "at byte 0: the blob ends"},
    {BLOB("td"), "at byte 2: the blob ends"},
    {BLOB("tdSc\1\0\0\0\0\0"), "at byte 2: 0x53"},
    {BLOB("tdsc\1\0\0"), "at byte 7: the blob ends"},
    {BLOB("tdsc\0\0\0\0\0\0"), "at byte 4: the version is 0"},
    {BLOB(HEAD), "at byte 8: the blob ends, wanted the number of dimensions"},
    {BLOB(HEAD "\0"), "at byte 9: the blob ends, wanted an entry"},
    {BLOB(HEAD "\21"), "at byte 8: 17 more dimensions after 0, wanted at most 16"},
    {BLOB(HEAD "\1"), "at byte 9: the blob ends, wanted a size"},
    {BLOB(HEAD "\1\x80\0\0"), "at byte 9: a size is not in its shortest form"},
    {BLOB(HEAD "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0"), "at byte 9: a size is 2^63 or more"},
    {BLOB(HEAD "\1\x80\x80\x80\x80\x80\x80\x80\x80\x80\1\0"), "at byte 9: a size is 2^63 or more"},
    {BLOB(HEAD "\0\0\0"), "at byte 10: 1 bytes after the end"},
    {BLOB(HEAD "\0\4a\0\0\0"), "at byte 9: 0x04 is not a kind"},
    {BLOB(HEAD "\0\1\0" F32 "\0\0"), "at byte 10: a key is empty"},
    {BLOB(HEAD "\0\1ab"), "at byte 10: the blob ends inside a key"},
    {BLOB(HEAD "\0\1a\0\2\x20"), "at byte 14: the blob ends, wanted a dtype"},
    {BLOB(HEAD "\0\1a\0\2\x21\1\0\0\0"), "at byte 12: dtype 0x00012102 is unknown"},
    {BLOB(HEAD "\0\1a\0\2\x20\0\0\0\0"), "at byte 12: dtype 0x00002002 is unknown"},
    {BLOB(HEAD "\0\1a\0" F32 "\41"), "33 more dimensions after 0, wanted at most 32"},
    {BLOB(HEAD "\1\1\1a\0" F32 "\40"), "32 more dimensions after 1, wanted at most 32"},
    {BLOB(HEAD "\0\1a\0" F32 "\1\x80\x80\x80\x80\x80\x80\x80\x80\x20\0"), "at byte 16: the bytes of the tensor do not"},
    {BLOB(HEAD "\0\1a\0" F32 "\2\x80\x80\x80\x80\x20\x80\x80\x80\x80\x20\0"), "do not fit 63 bits"},
    {BLOB(HEAD "\1\x80\x80\x80\x80\x80\x80\x80\x80\x20\1a\0" F32 "\0\0"), "do not fit 63 bits"},
    {BLOB(HEAD "\1\2\2a\0\20"), "16 more dimensions after 1"},
    {BLOB(HEAD "\0\2a\0\0\0"), "at byte 14: the blob ends"},
    {BLOB(HEAD "\0\3a\0\0\0"), "at byte 12: a type name is empty"},
    {BLOB(HEAD "\0\3a\0b"), "at byte 12: the blob ends inside a type name"},
    {BLOB(HEAD "\0\3a\0b\0\3c\0b\0\3a\0b\0\0"), "at byte 20: the key 'a' is twice"},
    {BLOB(HEAD "\0\2n\0\0\3a\0b\0\3a\0b\0\0\0"), "at byte 19: the key 'a' is twice"},
};

CASE(schema_read_refuses) {
  tdict_schema *const none = (tdict_schema *)(uintptr_t)0xA5A5, *s = none;
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    scoped_bytes exact = malloc(attacks[i].bytes + 1);
    memcpy(exact, attacks[i].blob, attacks[i].bytes);
    exact = realloc(exact, attacks[i].bytes ? attacks[i].bytes : 1);
    td_fails(TDICT_EFORMAT, attacks[i].text, tdict_schema_read(exact, attacks[i].bytes, &s, err));
    assert_ptr_equal(s, none);
  }
  td_fails(TDICT_EINVAL, "blob is NULL", tdict_schema_read(NULL, 0, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_schema_read(rig_bytes, sizeof rig_bytes, NULL, err));
  td_fails(TDICT_EFORMAT, "wanted at most 2147483647", tdict_schema_read(rig_bytes, (size_t)1 << 31, &s, err));
  td_fails(TDICT_ENOTSUP, "the version is 2, this library reads version 1",
           tdict_schema_read(BLOB("tdsc\2\0\0\0anything"), &s, err));
  /* Two trees may contain the same key. */
  static const char twice[] = HEAD "\0\2a\0\0\3a\0b\0\0\2b\0\0\3a\0b\0\0\0";
  tdict_schema_release(rig_read(BLOB(twice)));
}

CASE(schema_read_limits_depth) {
  enum { MORE = TDICT_SCHEMA_MAX_DEPTH + 1 };
  uint8_t blob[9 + 5 * MORE + 1] = HEAD;
  tdict_schema *s = NULL;
  for (int keys = MORE - 1; keys <= MORE; keys++) {
    size_t at = 9;
    for (int i = 0; i < keys; i++) {
      memcpy(blob + at, "\2k\0\0", 4);
      at += 4;
    }
    memset(blob + at, 0, (size_t)keys + 1);
    at += (size_t)keys + 1;
    if (keys < MORE)
      tdict_schema_release(rig_read(blob, at));
    else
      td_fails(TDICT_EFORMAT, "at byte 4105: a path has more than 1024 keys", tdict_schema_read(blob, at, &s, err));
  }
}

/* Reads a blob. If it is accepted, the schema must write the same bytes. If not, the error must contain an offset. */
static void try_blob(const uint8_t *blob, size_t bytes) {
  tdict_schema *s = NULL;
  tdict_error error = {0};
  if (tdict_schema_read(blob, bytes, &s, &error) == TDICT_OK) {
    size_t written;
    uint8_t *again = rig_blob(s, &written);
    assert_int_equal(written, bytes);
    assert_memory_equal(again, blob, bytes);
    free(again);
    tdict_schema_release(s);
    return;
  }
  assert_true(error.status == TDICT_EFORMAT || error.status == TDICT_ENOTSUP);
  assert_non_null(strstr(error.message, "at byte "));
}

CASE(schema_read_is_canonical) {
  for (size_t n = 0; n < sizeof rig_bytes; n++) { /* every truncated blob is refused */
    tdict_schema *s = NULL;
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, rig_bytes, n);
    td_fails(TDICT_EFORMAT, "at byte ", tdict_schema_read(exact, n, &s, err));
    free(exact);
  }
  for (size_t i = 0; i < sizeof rig_bytes; i++) {
    for (int value = 0; value < 256; value++) {
      scoped_bytes changed = malloc(sizeof rig_bytes);
      memcpy(changed, rig_bytes, sizeof rig_bytes);
      changed[i] = (uint8_t)value;
      try_blob(changed, sizeof rig_bytes);
    }
  }
}

CASE(schema_read_survives_enomem) {
  TD_SWEEP(sweep) {
    tdict_schema *s = NULL;
    if (td_refused(sweep, tdict_schema_read(rig_bytes, sizeof rig_bytes, &s, err)))
      assert_true(s == NULL && sweep.error.message[0] && sweep.n < 10);
    tdict_schema_release(s);
  }
}
