/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the README's program, whose main() is hello_main() here, against a server that does what the
 * stock rdma_server does: it receives 16 bytes and sends 16 back.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../suite.h"
#include "sgpool/softverbs.h"

int hello_main(int argc, char **argv);

static char received[16];
static struct rdma_cm_id *listener;

static void *serve(void *arg)
{
	struct rdma_cm_id *id;
	struct ibv_mr *in, *out;
	struct ibv_wc wc;
	char answer[16] = "and to you";

	(void)arg;
	if (rdma_get_request(listener, &id))
		return (void *)(uintptr_t) "no request";
	in = rdma_reg_msgs(id, received, sizeof received);
	out = rdma_reg_msgs(id, answer, sizeof answer);
	if (!in || !out || rdma_post_recv(id, NULL, received, sizeof received, in) ||
	    rdma_accept(id, NULL) || rdma_get_recv_comp(id, &wc) != 1 || wc.status ||
	    rdma_post_send(id, NULL, answer, sizeof answer, out, IBV_SEND_SIGNALED) ||
	    rdma_get_send_comp(id, &wc) != 1 || wc.status)
		return (void *)(uintptr_t) "the server failed";
	rdma_dereg_mr(in);
	rdma_dereg_mr(out);
	rdma_destroy_ep(id);
	return NULL;
}

START_TEST(the_readmes_program_runs)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *at;
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .sq_sig_all = 1};
	char name[] = "hello", host[] = "127.0.0.1", *argv[] = {name, host, NULL};
	char printed[64] = "";
	int out[2], stdout_was;
	pthread_t server;
	void *failure;

	ck_assert_int_eq(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &at), 0);
	ck_assert_int_eq(rdma_create_ep(&listener, at, NULL, &attr), 0);
	rdma_freeaddrinfo(at);
	ck_assert_int_eq(rdma_listen(listener, 1), 0);
	ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);

	ck_assert_int_eq(pipe(out), 0);
	fflush(stdout);
	stdout_was = dup(1);
	dup2(out[1], 1);
	ck_assert_int_eq(hello_main(2, argv), 0);
	fflush(stdout);
	dup2(stdout_was, 1);
	ck_assert_int_gt(read(out[0], printed, sizeof printed - 1), 0);
	ck_assert_int_eq(pthread_join(server, &failure), 0);
	ck_assert_msg(!failure, "%s", (char *)failure);
	ck_assert_str_eq(received, "hello, world");
	ck_assert_str_eq(printed, "and to you\n");
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	ck_assert_int_eq(sv_live(SV_QPS), 0);
}
END_TEST

/*
 * Runs it, which must fail with this on the standard error stream. In a process of its own, which ends
 * without a look at what the program left behind when it gave up.
 */
static void fails_with(const char *fault, const char *part)
{
	char name[] = "hello", host[] = "127.0.0.1", *argv[] = {name, host, NULL};
	char said[1024] = "";
	int err[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(err), 0);
	child = fork();
	if (child == 0) {
		dup2(err[1], 2);
		_exit(sv_faults(fault, NULL) ? 2 : hello_main(2, argv));
	}
	ck_assert_int_gt(child, 0);
	close(err[1]);
	ck_assert_int_gt(read(err[0], said, sizeof said - 1), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %x", status);
	ck_assert_msg(strstr(said, part), "no '%s' in '%s'", part, said);
	close(err[0]);
}

START_TEST(it_says_why_it_fails)
{
	fails_with("", "Connection refused");            /* nobody listens */
	fails_with("reg_mr fail ENOMEM", "registering"); /* as where RLIMIT_MEMLOCK is too low */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("readme");
	TCase *tc = tcase_create("program");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_readmes_program_runs);
	tcase_add_test(tc, it_says_why_it_fails);
	return suite_run(suite);
}
