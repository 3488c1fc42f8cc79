/* Runs a fuzz target over files, as libFuzzer runs it over a corpus. For compilers without libFuzzer.
 * usage: PROGRAM FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static int run(const char *name) {
  FILE *file = fopen(name, "rb");
  uint8_t *bytes = malloc(1 << 16);
  if (!file || !bytes) return perror(name), 1;
  size_t count = fread(bytes, 1, 1 << 16, file);
  fclose(file);
  LLVMFuzzerTestOneInput(bytes, count);
  free(bytes);
  return 0;
}

int main(int argc, char **argv) {
  int failed = argc < 2;
  for (int i = 1; i < argc && !failed; i++) failed = run(argv[i]);
  if (!failed) printf("%d files\n", argc - 1);
  return failed;
}
