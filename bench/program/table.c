/* Prints tables, and writes them as CSV and Markdown, see bench.h. Owns no data. Thread rule: one thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

enum { MOST_CELL = 96, LEAST_WIDTH = 7, LEAST_FIRST = 12, MOST_FIRST = 40, MOST_COLUMNS = 100 };

/* Adds a cell to all outputs. `exact` is its text in CSV. */
static void put_cell(bench_table *t, const char *shown, const char *exact) {
  FILE *csv = t->sink->csv.file, *markdown = t->sink->markdown.file;
  const int width = t->widths[t->column];
  const bool is_first = t->column == 0;
  if (!is_first)
    printf(" %*s", width, shown);
  else if ((int)strlen(shown) > width)
    printf("%s\n%*s", shown, width, ""); /* a long name gets a line of its own */
  else
    printf("%-*s", width, shown);
  if (csv && strpbrk(exact, ",\""))
    fprintf(csv, "%s\"%s\"", is_first ? "" : ",", exact);
  else if (csv)
    fprintf(csv, "%s%s", is_first ? "" : ",", exact);
  if (markdown) fprintf(markdown, "| %s ", shown);
  t->column++;
}

static void open_text(bench_text *text, const char *path) {
  if (path && !text->file) text->file = open_memstream(&text->text, &text->length);
}

void table_begin(bench_table *t, bench_sink *sink, const char *titles) {
  char title[MOST_CELL];
  int sum = 0;
  *t = (bench_table){.sink = sink};
  open_text(&sink->csv, sink->outputs.csv);
  open_text(&sink->markdown, sink->outputs.markdown);
  for (const char *at = titles; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
    const int length = (int)strcspn(at, "|");
    t->widths[t->num_columns] = length > LEAST_WIDTH ? length : LEAST_WIDTH;
    if (t->num_columns > 0) sum += 1 + t->widths[t->num_columns];
    t->num_columns++;
  }
  const int left = MOST_COLUMNS - sum;
  t->widths[0] = left < LEAST_FIRST ? LEAST_FIRST : left > MOST_FIRST ? MOST_FIRST : left;
  printf("\n");
  for (const char *at = titles; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
    const char *from = at + strspn(at, " ");
    snprintf(title, sizeof title, "%.*s", (int)strcspn(from, "|"), from);
    put_cell(t, title, title);
  }
  table_end_row(t);
  for (int i = 0; i < t->num_columns && sink->markdown.file; i++) fputs(i ? "---:|" : "|---|", sink->markdown.file);
  if (sink->markdown.file) fputc('\n', sink->markdown.file);
}

void table_text(bench_table *t, const char *text) { put_cell(t, text, text); }

void table_number(bench_table *t, const char *format, double number) {
  char shown[MOST_CELL], exact[MOST_CELL];
  if (isnan(number)) {
    put_cell(t, "-", "");
    return;
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(shown, sizeof shown, format, number);
#pragma GCC diagnostic pop
  snprintf(exact, sizeof exact, "%.9g", number);
  put_cell(t, shown, exact);
}

void table_ms(bench_table *t, double seconds) {
  const double ms = seconds * 1e3;
  table_number(t, ms < 100 ? "%.4f" : ms < 1000 ? "%.3f" : "%.1f", seconds > 0 ? ms : NAN);
}

void table_threads(bench_table *t, int32_t num_threads) {
  char text[16] = "auto";
  if (num_threads >= 0) snprintf(text, sizeof text, "%d", (int)num_threads);
  table_text(t, text);
}

void table_end_row(bench_table *t) {
  putchar('\n');
  fflush(stdout);
  if (t->sink->csv.file) fputc('\n', t->sink->csv.file);
  if (t->sink->markdown.file) fputs("|\n", t->sink->markdown.file);
  t->column = 0;
}
