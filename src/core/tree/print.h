/* Prints trees as tdict_format(), optionally with a text about a tensor's elements. Thread rule: tdict/tree.h. */
#ifndef TDICT_CORE_TREE_PRINT_H
#define TDICT_CORE_TREE_PRINT_H

#include "core/tree/node.h"

enum { TDICT_PRINT_ABOUT_BYTES = 160 };
typedef struct tdict_print_rule {
  /* Writes a text that ends the line of a tensor. NULL: no text. */
  void (*describe)(const tdict_tensor *t, char text[TDICT_PRINT_ABOUT_BYTES]);
  /* true: calls no hooks of objects. Their texts, and with objects the total of bytes, are missing then. */
  bool skips_hooks;
} tdict_print_rule;

/* Writes the text to a file. Returns the errors of tdict_print(). The messages begin with `what`. */
tdict_status tdict_print_to_file(const char *what, const tdict_tree *td, const tdict_print_rule *rule, FILE *file,
                                 tdict_error *err);
/* Writes the text to a descriptor, without stdio. Ignores errors. */
void tdict_print_to_descriptor(const tdict_tree *td, const tdict_print_rule *rule, int fd);

#endif
