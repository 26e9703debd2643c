/* A transport that spoils one message on its way in: what passes through it is otherwise another transport's. */
#ifndef TESTS_FAULTY_H
#define TESTS_FAULTY_H

#include "tersegrad.h"

typedef enum fault {
    NO_FAULT,
    CUT,   /* the last byte is missing */
    HALVE, /* the second half is missing */
    EMPTY, /* nothing came */
    FLIP,  /* one bit is wrong, somewhere */
    DELAY, /* it comes late */
    LOSE,  /* it never comes */
    FAULTS
} fault;
extern const char *const fault_names[FAULTS];
extern unsigned messages_spoilt; /* so far: an exchange may bring nothing from a rank */

/* Spoils what `from` sends in exchange `number` (counted from 0); `where`, a fraction of the message, is the byte that
 * is flipped. It owns `inner`. */
tg_transport *faulty(tg_transport *inner, fault fault, unsigned number, uint32_t from, double where);

#endif
