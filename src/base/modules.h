/* Modules: parts of the library that need something else at run time, each a file of its own beside the library, loaded
 * when it is asked for. */
#ifndef TG_BASE_MODULES_H
#define TG_BASE_MODULES_H

#include <stdbool.h>

enum { TG_MODULE_WHY = 4096 };

/* Loads a file: its handle, or NULL, and then `why` has a sentence. `global`: what is loaded later finds its
 * symbols. */
void *tg_module_load(const char *path, bool global, char why[TG_MODULE_WHY]);

/* The same for the module of this name, "mpi-openmpi.so", at the first place that has it. */
void *tg_module_find(const char *name, bool global, char why[TG_MODULE_WHY]);

/* The address of a symbol, or NULL. */
const void *tg_module_symbol(void *module, const char *name);

void tg_module_unload(void *module);

#endif
