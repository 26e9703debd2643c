/* Whether steps are compressed at all: a rule that all ranks apply alike, to times that all of them know. */
#ifndef TG_REDUCE_BYPASS_H
#define TG_REDUCE_BYPASS_H

#include "tersegrad.h"

enum { TG_BYPASS_SAMPLES = 4, TG_BYPASS_MOST_CHANGES = 4096 };

/* Whole numbers only, so that equal times lead to equal decisions on any machine. */
typedef struct tg_bypass_rule {
    uint32_t dense;    /* how steps are sent from now on */
    uint32_t trying;   /* which is being tried, and may be taken back */
    uint32_t skipping; /* steps whose time does not count: the first after a change */
    uint32_t count;    /* times since the last estimate */
    uint32_t samples[TG_BYPASS_SAMPLES];
    uint32_t estimates[2];   /* microseconds of a step, compressed and dense; 0: not known */
    uint32_t waited, period; /* steps since the last change, and until the other way is tried */
} tg_bypass_rule;

enum { TG_BYPASS_NUMBERS = sizeof(tg_bypass_rule) / sizeof(uint32_t) };

/* Whether a rule may have come to these numbers, with so many changes in its log. */
bool tg_bypass_rule_check(const tg_bypass_rule *rule, size_t changes);
void tg_bypass_rule_begin(tg_bypass_rule *rule);
/* Takes the time of a step that was sent so. `may_change`: there is room in the log. A time is known `depth` steps
 * after its own, and what is decided takes effect as many steps later. */
void tg_bypass_rule_note(tg_bypass_rule *rule, bool dense, uint32_t microseconds, bool may_change, uint32_t depth);

#endif
