/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The door: the listener, connect requests and what becomes of them, and the devices that they come in
 * by. A device is opened when the listener is bound to it, or with the first host that comes through it.
 */
#ifndef NVMF_SERVER_H
#define NVMF_SERVER_H

#include "target.h"

/* Listen where the options say: thread 0. Returns 0; -1 after a line on stderr. */
int server_open(struct target *t);

/* Another thread: be ready for hosts that come in by the devices thread 0 has. Likewise. */
int server_join(struct target *t);

/* Accept what thread 0 has sent. */
void server_mail(struct target *t);

/* No more hosts. */
void server_stop(struct target *t);

/* Give the devices back, once no queue is left. Returns 0; -1 after a line on stderr. */
int server_close(struct target *t);

/* Handle the completions of all devices. Returns how many; -1 when a completion queue has failed. */
int server_poll(struct target *t);

/* Before a sleep: be woken by completions. Returns 0; -1 after a line on stderr. */
int server_arm(struct target *t);

#endif
