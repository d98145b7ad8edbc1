/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librdmacm's sockets over RDMA are not made here: there are none, and so a program that was
 * preloaded does not get the real library's, which would look for real devices. What takes any
 * descriptor as well as an rsocket works on those.
 */
#include "softverbs/sw.h"

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

int rsocket(int domain, int type, int protocol)
{
	(void)domain, (void)type, (void)protocol;
	return sw_fail(EOPNOTSUPP);
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return poll(fds, nfds, timeout);
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	return select(nfds, readfds, writefds, exceptfds, timeout);
}
