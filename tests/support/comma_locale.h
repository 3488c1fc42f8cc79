/* Builds a locale with a decimal comma in a temporary folder with localedef, and sets it with setlocale(). Skips the
 * case if localedef or the locale's source is missing. Thread rule: the main thread, while no other thread runs. */
#ifndef TDICT_TESTS_SUPPORT_COMMA_LOCALE_H
#define TDICT_TESTS_SUPPORT_COMMA_LOCALE_H

#include <locale.h>

#include "support/test.h"

static inline void td_comma_locale_set(void) {
  char folder[] = "/tmp/tdict-locale-XXXXXX", command[256], text[8];
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
  (void)!system(command); /* localedef returns 1 even for warnings */
  setenv("LOCPATH", folder, 1);
  const char *set = setlocale(LC_ALL, "de_DE.UTF-8");
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
  unsetenv("LOCPATH");
  if (!set) td_skip("localedef cannot make de_DE.UTF-8: install the package locales");
  snprintf(text, sizeof text, "%.1f", 1.5);
  assert_string_equal(text, "1,5");
}
static inline void td_comma_locale_reset(void) { setlocale(LC_ALL, "C"); }

#endif
