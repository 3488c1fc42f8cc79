/* Tests the JSON reader (refusals that RFC 8259 does not require, values, strings, tables of members) and the writer.
 * tests/beside/json_texts.py compares the reader with Python's json module. */
#include "services/io/json/document.h"

#include "services/io/json/read.h"
#include "support/test.h"

static void refuse(const char *text, tdict_status status, size_t at, const char *why) {
  tdict_json_document document = {0};
  tdict_json_fault fault = {0, NULL};
  assert_int_equal(tdict_json_open(text, strlen(text), &document, &fault), status);
  assert_int_equal(fault.at, at);
  assert_string_equal(fault.why, why);
  assert_null(document.ends);
}

static tdict_json open_text(const char *text, tdict_json_document *document) {
  tdict_json_fault fault;
  assert_int_equal(tdict_json_open(text, strlen(text), document, &fault), TDICT_OK);
  return tdict_json_root(document);
}

CASE(json_open_refuses_what_has_two_meanings) {
  refuse("{\"a\":1,\"a\":2}", TDICT_ENOTSUP, 7, "duplicate object key");
  refuse("[{\"a\":1,\"b\":2,\"\\u0061\":3}]", TDICT_ENOTSUP, 14, "duplicate object key");
  refuse("{\"a\":{\"b\":{\"\\u00e9\":1, \"é\":1}}}", TDICT_ENOTSUP, 23, "duplicate object key");
  refuse("{\"a\\u0000\":1}", TDICT_ENOTSUP, 1, "a key with a 0 byte");
  refuse("[9223372036854775808]", TDICT_ENOTSUP, 1, "too big integer");
  refuse("[1, -9223372036854775809]", TDICT_ENOTSUP, 4, "too big integer");
  refuse("1e309", TDICT_ENOTSUP, 0, "real number overflow");
  refuse("{\"a\":-1e309}", TDICT_ENOTSUP, 5, "real number overflow");
  refuse("[1,]", TDICT_EFORMAT, 3, "wanted a value");
  refuse("", TDICT_EFORMAT, 0, "wanted a value");
  refuse("\xef\xbb\xbf{}", TDICT_EFORMAT, 0, "wanted a value");
}

CASE(json_open_finds_a_duplicate_among_many_keys) {
  for (int twice = 0; twice < 40; twice++) {
    char text[400];
    size_t length = 1, second = 0;
    text[0] = '{';
    for (int i = 0; i < 40; i++) {
      if (i == 39) second = length;
      length += (size_t)snprintf(text + length, sizeof text - length, "\"%d\":0,", i == 39 ? twice : i);
    }
    text[length - 1] = '}';
    if (twice < 39) {
      refuse(text, TDICT_ENOTSUP, second, "duplicate object key");
    } else {
      tdict_json_document document;
      assert_int_equal(tdict_json_count(open_text(text, &document)), 40);
      tdict_json_close(&document);
    }
  }
}

CASE(json_values_are_positions) {
  static const char text[] = " {\"a\" : [1 , [ [ ] , { } ] , \"]}\\\"\" ,-0.5e1], \"b\":{\"c\":null},\"d\":true} ";
  static const tdict_json_kind kinds[] = {TDICT_JSON_INTEGER, TDICT_JSON_ARRAY, TDICT_JSON_STRING, TDICT_JSON_REAL};
  tdict_json_document document;
  const tdict_json root = open_text(text, &document), a = tdict_json_get(root, "a"), b = tdict_json_get(root, "b");
  int64_t integer = 7;
  double real = 7;
  assert_int_equal(tdict_json_count(root), 3);
  assert_int_equal(tdict_json_count(a), 4);
  for (size_t i = 0; i < 4; i++) assert_int_equal(tdict_json_kind_of(tdict_json_at(a, i)), kinds[i]);
  assert_false(tdict_json_exists(tdict_json_at(a, 4)));
  assert_true(tdict_json_integer(tdict_json_at(a, 0), &integer) && integer == 1);
  assert_false(tdict_json_integer(tdict_json_at(a, 3), &integer));
  assert_true(tdict_json_real(tdict_json_at(a, 3), &real) && real == -5);
  assert_true(tdict_json_equals(tdict_json_at(a, 2), "]}\""));
  assert_int_equal(tdict_json_kind_of(tdict_json_get(b, "c")), TDICT_JSON_NULL);
  assert_int_equal(tdict_json_kind_of(tdict_json_get(root, "d")), TDICT_JSON_TRUE);
  /* A missing value has no members: looking one up returns another missing value. */
  const tdict_json none = tdict_json_get(tdict_json_get(root, "x"), "y");
  assert_int_equal(tdict_json_kind_of(none), TDICT_JSON_ABSENT);
  assert_int_equal(tdict_json_bytes(none), 0);
  assert_int_equal(tdict_json_count(none), 0);
  tdict_json_close(&document);
}

CASE(json_strings_are_decoded) {
  static const char text[] = "[\"a\\u00e9\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\"\\\\é\", \"x\\u0000y\", \"x\"]";
  static const char wanted[] = "aé\xf0\x9f\x98\x80/\b\f\n\r\t\"\\é";
  tdict_json_document document;
  const tdict_json root = open_text(text, &document);
  char found[64];
  assert_true(tdict_json_read_text(tdict_json_at(root, 0), found, sizeof found));
  assert_string_equal(found, wanted);
  assert_true(tdict_json_equals(tdict_json_at(root, 0), wanted));
  assert_true(tdict_json_read_text(tdict_json_at(root, 0), found, 6)); /* the third character does not fit */
  assert_string_equal(found, "aé");
  assert_false(tdict_json_read_text(tdict_json_at(root, 1), found, sizeof found));
  assert_int_equal(tdict_json_string_decode(tdict_json_start(tdict_json_at(root, 1)), found, sizeof found), 3);
  assert_memory_equal(found, "x\0y", 3);
  assert_false(tdict_json_equals(tdict_json_at(root, 1), "x"));
  assert_true(tdict_json_string_compare("\"\\ud83d\\ude00\"", "\"\\uffff\"") > 0); /* compared as code points */
  assert_true(tdict_json_string_compare("\"a\"", "\"a!\"") < 0);
  assert_true(tdict_json_string_compare("\"\\u0061b\"", "\"ab\"") == 0);
  tdict_json_close(&document);
}

CASE(json_tables_find_members) {
  tdict_json_document document;
  tdict_json_table table;
  const tdict_json root =
      open_text("{\"b\\u0061\":1,\"a\":2,\"\":3,\"\\\"\":4,\"é\":5,\"list\":[\"z\",7,\"\\u0079\"]}", &document);
  static const char *const keys[] = {"ba", "a", "", "\"", "é"};
  int64_t number = 0;
  assert_int_equal(tdict_json_table_make(root, &table), TDICT_OK);
  for (int i = 0; i < 5; i++) {
    assert_true(tdict_json_integer(tdict_json_table_find(&table, keys[i]), &number));
    assert_int_equal(number, i + 1);
  }
  assert_false(tdict_json_exists(tdict_json_table_find(&table, "b")));
  free(table.members);
  assert_int_equal(tdict_json_table_make(tdict_json_get(root, "list"), &table), TDICT_OK);
  assert_int_equal(table.count, 2);
  assert_true(tdict_json_exists(tdict_json_table_find(&table, "y")));
  assert_false(tdict_json_exists(tdict_json_table_find(&table, "7")));
  free(table.members);
  tdict_json_close(&document);
}

CASE(json_is_written_without_spaces) {
  tdict_json_document document;
  tdict_io_text text = {0};
  tdict_json_write(
      &text, open_text(" { \"a\" : [ 1.0 , -0 , 1E5 , 1e-7 , 1e300 , 0.5 ] , \"\\u00e9\\/\\u000a\" : \"\\u001f\" } ",
                       &document));
  assert_string_equal(
      text.bytes, "{\"a\":[1.0,0,100000.0,9.9999999999999995e-8,1.0000000000000001e300,0.5],\"é/\\n\":\"\\u001f\"}");
  tdict_io_text_reset(&text);
  tdict_json_close(&document);
}

CASE(json_open_survives_enomem) {
  static const char text[] =
      "{\"0\":[],\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"a\":1,\"b\":2,"
      "\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7}";
  for (int64_t n = 0; n < 2; n++) {
    tdict_json_document document = {0};
    tdict_json_fault fault;
    td_fail_alloc(n, false);
    const tdict_status status = tdict_json_open(text, strlen(text), &document, &fault);
    assert_true(td_fail_alloc_stop());
    assert_int_equal(status, TDICT_ENOMEM);
    assert_null(document.ends);
  }
}
