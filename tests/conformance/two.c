/* SPDX-License-Identifier: BSD-2-Clause */
/* The two processes, their shared memory, and the calls between them; see two.h. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cf.h"

#define HALF  (256u << 20)
#define STACK (8u << 20)

static struct call {
	cf_function *f;
	long arg[5], ret;
	int err;
} * call; /* in the shared memory */

static char *shared;
static bool peer; /* which of the two this is */
static int to_peer[2], from_peer[2];

/* ---- the heap: nothing is ever given back, a behaviour is short ---- */

static char early[8 << 20];
static _Atomic(char *) next = early;
static _Atomic(char *) end = early + sizeof early;

static void *take(size_t n, size_t align)
{
	char *p = atomic_load(&next), *at;

	do {
		at = (char *)(((uintptr_t)p + 16 + align - 1) & ~(align - 1));
		if (n > (size_t)(atomic_load(&end) - at) || at > atomic_load(&end)) {
			errno = ENOMEM;
			return NULL;
		}
	} while (!atomic_compare_exchange_weak(&next, &p, at + n));
	memcpy(at - 16, &n, sizeof n);
	return at;
}

/* The library's too. */
#pragma GCC visibility push(default)
void *malloc(size_t n)
{
	return take(n, 16);
}

void *calloc(size_t n, size_t size)
{
	return take(n * size, 16); /* fresh memory is zero */
}

void *aligned_alloc(size_t align, size_t n)
{
	return take(n, align < 16 ? 16 : align);
}

void *realloc(void *old, size_t n)
{
	void *p = take(n, 16);
	size_t had = 0;

	if (old)
		memcpy(&had, (char *)old - 16, sizeof had);
	if (p && old)
		memcpy(p, old, had < n ? had : n);
	return p;
}

void free(void *p)
{
	(void)p;
}
#pragma GCC visibility pop

static void heap_in(char *from, size_t n)
{
	atomic_store(&end, from + n);
	atomic_store(&next, from);
}

/* ---- calls ---- */

static long do_call(struct call *c)
{
	typedef long any(long, long, long, long, long);

	/* Each argument is an integer or a pointer: they come in registers, wanted or not. */
	return ((any *)(uintptr_t)c->f)(c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4]);
}

long cf_peer_call(cf_function *f, long a, long b, long c, long d, long e)
{
	char x = 0;

	*call = (struct call){f, {a, b, c, d, e}, 0, 0};
	if (write(to_peer[1], &x, 1) != 1 || read(from_peer[0], &x, 1) != 1) {
		say(" the peer has died");
		exit(0);
	}
	errno = call->err;
	return call->ret;
}

long cf_call(cf_function *f, long a, long b, long c, long d, long e)
{
	const char *at = (const char *)a;
	struct call here = {f, {a, b, c, d, e}, 0, 0};

	if (at >= shared + HALF && at < shared + 2 * HALF)
		return cf_peer_call(f, a, b, c, d, e);
	return do_call(&here);
}

bool cf_readable_here(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* ---- the processes ---- */

static void serve(void)
{
	char x;

	/* Its descriptors are told by their numbers. */
	while (open("/dev/null", O_RDONLY | O_CLOEXEC) < CF_PEER_FD - 1)
		;
	while (read(to_peer[0], &x, 1) == 1) {
		errno = 0;
		call->ret = do_call(call);
		call->err = errno;
		if (write(from_peer[1], &x, 1) != 1)
			break;
	}
	_exit(0);
}

static void *behave(void *f)
{
	/* An object pointer that holds a function's, as POSIX has it. */
	((void (*)(void))(uintptr_t)f)();
	return NULL;
}

void cf_two(void (*f)(void))
{
	pthread_attr_t a;
	char world[32];
	pthread_t t;
	pid_t pid;

	snprintf(world, sizeof world, "cf%d", getpid());
	setenv("SGP_SOFTVERBS_WORLD", world, 1);
	setenv("SGP_SOFTVERBS_NET", "local", 1);
	shared = mmap(NULL, 2 * (size_t)HALF, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED || pipe(to_peer) || pipe(from_peer)) {
		perror("conformance");
		exit(2);
	}
	call = (struct call *)(void *)shared;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		exit(2);
	peer = !pid;
	heap_in(peer ? shared + HALF : shared + 4096 + STACK, HALF - 4096 - STACK);
	close(peer ? to_peer[1] : to_peer[0]);
	close(peer ? from_peer[0] : from_peer[1]);
	if (peer) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve();
	}
	pthread_attr_init(&a);
	pthread_attr_setstack(&a, shared + 4096, STACK);
	if (pthread_create(&t, &a, behave, (void *)(uintptr_t)f))
		exit(2);
	pthread_join(t, NULL);
	fflush(stdout);
	_exit(0);
}
