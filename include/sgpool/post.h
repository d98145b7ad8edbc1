/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues: endpoints (a queue pair each) and the completion queue that they share.
 *
 * What a post accepts is held by the queue, registered and untouchable, until its completion has
 * been reaped by sgp_poll(). Every accepted operation that owes a completion gives exactly one, also
 * when the connection breaks or the endpoint is closed.
 *
 * Threads: an endpoint's two sides are each serialised inside, and so is a completion queue. On a
 * queue made with SGP_CQ_SINGLE_THREADED nothing is: its caller serialises it and all endpoints on it.
 * In a forked child calls fail with EPERM, and without the object that they are for with EINVAL.
 */
#ifndef SGPOOL_POST_H
#define SGPOOL_POST_H

#include <stdint.h>

#include <rdma/rdma_cma.h>
#include <sgpool/sgl.h>

SGP_BEGIN_DECLS

struct sgp_cq;
struct sgp_ep;
struct sgp_srq;

/* Flags of a completion queue. */
enum {
	SGP_CQ_SINGLE_THREADED = 1 << 0,
	/* Each completion has the device's time (sgp_wc.timestamp). Costs some calls a completion. */
	SGP_CQ_TIMESTAMPS = 1 << 1,
};

/* Zero the whole structure first. */
struct sgp_cq_attr {
	uint32_t comp_mask; /* 0 */
	uint32_t flags;     /* SGP_CQ_* */
	int cqe;            /* entries: the send and receive depth of all endpoints to come */
	int cqe_fixed;      /* entries instead, where the device can't resize the queue later; at most what
	                       the device has. 0, and whatever is not above cqe: cqe */
	int comp_vector;
	int max_sge;        /* SGEs of the longest list that a completion hands over; 0: 16 */
	int max_chunk;      /* holds of that list; 0: as max_sge */
};

/*
 * A completion. Make arrays of them with sgp_wc_alloc(): each carries a list with storage of its own.
 */
struct sgp_wc {
	void *context;             /* as given to the post */
	struct sgp_ep *ep;
	enum ibv_wc_opcode opcode; /* right on errors too, unlike ibv_wc's */
	enum ibv_wc_status status;
	int error;                 /* the provider's errno, if the post itself failed half-way; ECANCELED
	                              after sgp_cancel(); else 0 */
	uint32_t vendor_err;
	uint64_t byte_len;         /* of a receive or READ: what arrived. Valid on success only. (A READ
	                              that was split may be longer than ibv_wc could say.) */
	uint32_t imm_data;         /* big-endian, with IBV_WC_WITH_IMM in wc_flags; the key that was
	                              invalidated, with IBV_WC_WITH_INV */
	unsigned int wc_flags;     /* IBV_WC_* */
	/*
	 * Of a datagram (a receive on a UD queue pair), as in ibv_wc: where it came from. Buffers have 40
	 * bytes for the routing header before the payload; sgl skips them and byte_len does not count
	 * them. grh: the header, with IBV_WC_GRH in wc_flags, else NULL; it's in the list's first chunk,
	 * and good as long as that is held. sgp_create_ah_from_wc() makes an address of all this.
	 */
	uint32_t src_qp;           /* 0: no datagram, and the rest of it means nothing */
	uint16_t slid, pkey_index;
	uint8_t sl, dlid_path_bits;
	struct ibv_grh *grh;
	/*
	 * With SGP_CQ_TIMESTAMPS: when the device made the completion, in ticks of its clock
	 * (hca_core_clock of ibv_query_device_ex(3) is its kHz). 0 where it's not known: of what the device
	 * gave no completion for, and what the close or reset of another endpoint has reaped.
	 */
	uint64_t timestamp;
	struct sgp_sgl sgl;        /* what comes back: the chunks of a receive, trimmed to byte_len, of a
	                              READ, an atomic, or a post with SGP_HANDOVER; on an error, whole;
	                              nothing of what was cancelled */
};

/*
 * Make n completions with lists large enough for any completion of cq.
 *
 * sgp_poll() drops what it finds in these lists before it fills them: what a list holds is the
 * caller's until the array is used again; sgp_sgl_move() or a post takes it out of it.
 * Returns the array, to be freed by sgp_wc_free(); NULL with EINVAL or ENOMEM.
 */
SGP_API struct sgp_wc *sgp_wc_alloc(const struct sgp_cq *cq, int n);

/* Drop what is in the lists of the array and free it. NULL does nothing. */
SGP_API void sgp_wc_free(struct sgp_wc *wc);

/*
 * Make a completion queue on a device.
 *
 * Returns the queue, to be ended by sgp_cq_destroy(); NULL with EINVAL, ENOMEM, EOPNOTSUPP
 * (SGP_CQ_TIMESTAMPS, and the device does not tell the time), or the errno of ibv_create_cq(3).
 */
SGP_API struct sgp_cq *sgp_cq_create(struct ibv_context *verbs, const struct sgp_cq_attr *attr);

/* End it. Returns 0; -1 with EBUSY while an endpoint is attached, or the errno of ibv_destroy_cq(3). */
SGP_API int sgp_cq_destroy(struct sgp_cq *cq);

/*
 * Reap up to n completions into wc[0 .. n - 1], in the shape of ibv_poll_cq(3).
 *
 * Returns how many were filled in, 0 when there was none; -1 with errno when the queue itself has
 * failed (EIO, as after an overrun); completions reaped before that come first. -1 with EINVAL when wc
 * was made for a queue of shorter lists; nothing is reaped then.
 */
SGP_HOT_API int sgp_poll(struct sgp_cq *cq, int n, struct sgp_wc *wc);

/*
 * The same, but wait until there is one: at most timeout_ms milliseconds, -1 for ever.
 *
 * Returns as sgp_poll(); 0 when the time is over; -1 also as sgp_cq_arm(). A signal ends it with
 * -1/EINTR.
 */
SGP_API int sgp_wait(struct sgp_cq *cq, int n, struct sgp_wc *wc, int timeout_ms);

/*
 * A descriptor for poll(2) and epoll(7) that turns readable when a completion came after
 * sgp_cq_arm(), or when posts that came after it need seeing to, which the next sgp_cq_arm() does
 * (SGP_BATCH, and what nobody asked a completion for). It belongs to the queue. To wait without losing
 * one: arm, poll until it returns 0, then sleep on the descriptor. Wake-ups without a completion are
 * normal. Returns it; -1 with EINVAL without a queue.
 */
SGP_API int sgp_cq_fd(const struct sgp_cq *cq);

/*
 * Tell the queue of an event that ibv_get_async_event(3) gave for its device, before it is
 * acknowledged: any event may be handed to each queue of the device, which takes its own.
 *
 *   IBV_EVENT_CQ_ERR         the queue has overrun: once it's empty sgp_poll() is -1/EIO, and its
 *                            endpoints post no more (ESHUTDOWN). What they had posted comes home when
 *                            they are closed, which does not wait for completions then. A new endpoint
 *                            is refused with EIO.
 *   IBV_EVENT_DEVICE_FATAL   no endpoint of the queue posts any more: close them
 *   IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR
 *                            that endpoint posts no more
 * Others change nothing. (A port that is down ends nothing by itself: what is posted completes when
 * it's up again, or with an error when its retries are over.)
 * Returns 0; -1 with EINVAL. Thread-safe. Nothing is let go by an event alone.
 */
SGP_API int sgp_cq_event(struct sgp_cq *cq, const struct ibv_async_event *event);

/*
 * Ask for one wake-up of sgp_cq_fd() at the next completion. Returns 0, or -1 with the errno of
 * ibv_req_notify_cq(3).
 */
SGP_API int sgp_cq_arm(struct sgp_cq *cq);

/*
 * A part of what each receive is made of: n chunks of a pool.
 *
 * A message fills the parts in their order, and the completion hands over the chunks that it reached,
 * each with an SGE of its own, cut to what arrived. {.pool = small, .size = 64} and then {.pool =
 * large, .size = 4096, .n = 4} put a 64-byte header apart from a payload of up to 16 KiB that starts
 * on a page (chunks of a page and more do).
 */
struct sgp_recv_part {
	struct sgp_pool *pool;
	size_t size;   /* bytes of each chunk to receive into; the class is chosen for offset + size */
	size_t offset; /* bytes at each chunk's front to leave alone: room for sgp_sgl_prepend() */
	int n;         /* chunks; 0: 1 */
};

/* Zero the whole structure first; 0 takes the default. */
struct sgp_ep_attr {
	uint32_t comp_mask; /* 0 */
	uint32_t flags;     /* 0 */
	struct sgp_cq *cq;
	struct ibv_pd *pd;        /* that the pools are registered on */
	struct ibv_qp_cap cap;    /* depths (both needed), SGEs (0: 1) and inline bytes asked for */
	int sq_sig_all;           /* every operation yields a completion, as in ibv_qp_init_attr */
	int max_chunk;            /* holds of a list per work request; 0: the larger number of SGEs */
	enum ibv_qp_type qp_type; /* 0: RC, or UD on an identifier of RDMA_PS_UDP */
	uint8_t port_num;         /* without an identifier; 0: 1 */
	/*
	 * Receives that the library keeps posted, cap.max_recv_wr of them, each made of num_recv parts.
	 * NULL: the caller posts receives, or srq has them.
	 *
	 * What a completion hands over is replaced from the pools before that sgp_poll() returns, with
	 * SGP_GET_RESERVED, on an endpoint that never sends too. When a pool has too few chunks, what
	 * is missing is remembered, and the next chunks that are put, on any thread, come here first:
	 * the put posts the receive by itself where it can, else it makes sgp_cq_fd() readable and the
	 * next sgp_poll() posts it. No memory is registered for it. A receive that the device refuses
	 * is tried again by every poll.
	 *
	 * On a datagram queue pair the first part begins with 40 bytes for the header (struct sgp_wc).
	 */
	const struct sgp_recv_part *recv; /* [num_recv]; read during the call only */
	int num_recv;
	/*
	 * Of the completions of these receives. With srq: of those that come on this endpoint, in place
	 * of the context that the shared receive was posted with, unless it's NULL.
	 */
	void *recv_context;
	struct sgp_srq *srq; /* take receives from this queue (srq.h); cap.max_recv_* mean nothing then */
};

/*
 * Make a queue pair on a connection identifier whose device is known (its address is resolved, or it
 * came with a connect request), and an endpoint over it.
 *
 * The identifier stays the caller's: connect, accept and events are librdmacm's. It must stand until
 * sgp_ep_close(), which destroys its queue pair. id NULL makes a plain queue pair in RESET, whose
 * ibv_modify_qp(3) is the caller's (sgp_ep_qp()). Room for both depths is reserved on the cq.
 * Returns the endpoint, to be ended by sgp_ep_close() and sgp_ep_destroy(); NULL with errno, and the
 * identifier is as it was. (Should the device refuse to destroy a queue pair that was made already, the
 * identifier keeps it, and with it go for ever what it has: the receives posted to it, their room on the
 * cq, the use of pd.)
 *   EINVAL  an attribute is wrong; the identifier has a queue pair, or no device; another device than
 *           cq's; a receive list of more SGEs, or max_chunk of more holds, than the cq hands over; only
 *           one of cq and srq is single-threaded
 *   E2BIG   more SGEs, or a deeper queue, than the device has (or above 32768); more chunks in recv
 *           than max_recv_sge
 *   EMSGSIZE, EXDEV, EACCES, ENOBUFS
 *           of recv: a part is larger than its pool's largest class; a pool is not registered on pd;
 *           it may not be written; it has too few chunks now for all receives. (On a plain queue
 *           pair only the first: sgp_ep_refill() posts the receives there.)
 *   ENOSPC  64 protection domains are in use, or 65536 endpoints on the cq
 *   EIO     the cq has failed
 *   ENOMEM, or the errno of rdma_create_qp(3), ibv_resize_cq(3) (the cq has no room for both depths
 *   and the device cannot give it more), ibv_query_device(3) or ibv_query_port(3)
 */
SGP_API struct sgp_ep *sgp_ep_create(struct rdma_cm_id *id, const struct sgp_ep_attr *attr);

/* The endpoint's queue pair, for ibv_query_qp(3), ibv_modify_qp(3) and its number; NULL once closed. */
SGP_API struct ibv_qp *sgp_ep_qp(const struct sgp_ep *ep);

/*
 * Tell the endpoint of an event that rdma_get_cm_event(3) gave for its identifier, before it is
 * acknowledged: ESTABLISHED lets it send, DISCONNECTED, REJECTED, device removal and the like stop
 * it. Others change nothing.
 *
 * It's needed on devices whose ibv_query_qp(3) does not tell the state (soft-iWARP before Linux
 * 6.8), and spares the query on the others. A synchronous identifier's own event is looked at by
 * itself. Returns 0; -1 with EINVAL. Thread-safe.
 */
SGP_API int sgp_ep_event(struct sgp_ep *ep, const struct rdma_cm_event *event);

/*
 * What the endpoint can take: room for posts now and limits. On a shared receive queue the numbers of
 * receives are that queue's, for all of its endpoints together.
 */
struct sgp_ep_info {
	int send_room, recv_room;       /* posts that would be accepted now */
	int send_posted, recv_posted;   /* operations that the queue holds */
	int recv_missing;               /* receives to be posted as soon as a pool has chunks for them */
	int max_send_sge, max_recv_sge; /* SGEs a list */
	uint32_t max_inline;            /* bytes; as the queue pair reported */
	uint64_t max_msg;               /* bytes a message */
};

/* Fill in *info. Returns 0; -1 with EINVAL. Thread-safe. */
SGP_API int sgp_ep_query(struct sgp_ep *ep, struct sgp_ep_info *info);

/*
 * Post the receives that are missing, on an endpoint with sgp_ep_attr.recv. The polls do it by
 * themselves; but on a plain queue pair nothing is posted before the first call, to be made once it
 * is in INIT.
 *
 * Returns 0 when nothing is missing then; -1 with ENOBUFS when a pool has too few chunks (those that
 * are put from now on come here), ESHUTDOWN, EINVAL, or the provider's errno. Thread-safe.
 */
SGP_API int sgp_ep_refill(struct sgp_ep *ep);

/* What an endpoint did since it was made. */
struct sgp_ep_stats {
	uint64_t posts;       /* operations accepted */
	uint64_t wrs;         /* work requests made for them */
	uint64_t doorbells;   /* calls of ibv_post_send(3) */
	uint64_t signalled;   /* requests with IBV_SEND_SIGNALED */
	uint64_t inlined;     /* operations that went inline */
	uint64_t split;       /* operations that took several requests */
	uint64_t linearised;  /* lists that were copied */
	uint64_t joined;      /* SGEs saved by joining neighbours */
	uint64_t syncs;       /* requests that retire a tail */
	uint64_t recvs;       /* receives accepted */
	uint64_t refilled;    /* of these, posted by the library (sgp_ep_attr.recv) ... */
	uint64_t refills;     /* ... by so many calls of ibv_post_recv(3) */
	uint64_t recv_by_put; /* ... and so many by the thread that put the chunk */
	uint64_t recv_dry;    /* times that a pool had too few chunks for a receive */
	uint64_t recv_refused; /* receives refused; of the library's, those the device did not take */
	uint64_t queue_full;  /* refusals with EAGAIN ... */
	uint64_t too_big;     /* E2BIG, EMSGSIZE */
	uint64_t not_ready;   /* ENOTCONN, ESHUTDOWN */
	uint64_t wrong_memory; /* EXDEV, EACCES, EFAULT */
	uint64_t invalid;     /* EINVAL, EOPNOTSUPP, EBUSY of a window */
	uint64_t refused;     /* by the device */
	uint64_t completions; /* handed to the caller; and of these: */
	uint64_t errors;
	uint64_t cancelled;   /* operations that sgp_cancel() has ended for the caller */
	uint64_t quarantined; /* holds that the device may still use, now: of cancelled operations, and
	                         of all when the queue pair could not be destroyed */
};

/* Fill in *stats. Returns 0; -1 with EINVAL. */
SGP_API int sgp_ep_stats(struct sgp_ep *ep, struct sgp_ep_stats *stats);

/*
 * Stop the endpoint: posts are refused with ESHUTDOWN, the queue pair goes to the error state, and
 * for at most timeout_ms milliseconds (-1: without a limit) its completions are awaited; then the queue
 * pair is destroyed.
 *
 * What had not completed comes out of sgp_poll() as IBV_WC_WR_FLUSH_ERR, each context exactly once,
 * with the completions that were reaped meanwhile. A second call does nothing; two at once are not
 * allowed, anything else on the endpoint or its queue is.
 * Returns 0; -1 with the errno of ibv_destroy_qp(3): what was posted stays held then, and the call
 * may be made again.
 */
SGP_API int sgp_ep_close(struct sgp_ep *ep, int timeout_ms);

/*
 * Take the endpoint's queue pair through the RESET state, for another connection: ibv_modify_qp(3)
 * drops its work requests silently then.
 *
 * First what has completed is taken from the device, and no post is on its way any more. Then each
 * operation and each receive that the caller posted comes out of sgp_poll() as IBV_WC_WR_FLUSH_ERR, each
 * context exactly once, with its list as on any error; what was cancelled is let go. The caller's
 * receives are the caller's to post again; the room of one comes back when its flush has been polled.
 * Receives of the library's (sgp_ep_attr.recv) are all posted again before this returns.
 * A completion of the old life that a provider still gives is recognised and ignored.
 *
 * A queue pair that had been initialised is in INIT then, as it was before (port, key, access
 * rights), otherwise in RESET; RTR and RTS are the caller's (sgp_ep_qp()). Until it is in RTS, sends
 * are ENOTCONN. A librdmacm identifier cannot connect a second time: this is for plain queue pairs.
 * Two calls at once, or a call beside sgp_ep_close(), are not allowed; anything else is.
 * Returns 0; -1 with EINVAL (no endpoint, or it's closed), EOPNOTSUPP (iWARP, whose queue pairs cannot
 * connect again: close it) or the errno of ibv_query_qp(3), and nothing has changed; -1 with the errno
 * of ibv_modify_qp(3) or ibv_post_recv(3), and the endpoint has stopped: the call may be made again, or
 * the endpoint closed.
 */
SGP_API int sgp_ep_reset(struct sgp_ep *ep);

/*
 * Free a closed endpoint. Returns 0; -1 with EBUSY when it is not closed, sgp_poll() still has
 * completions of it to hand out, or a window of it stands.
 */
SGP_API int sgp_ep_destroy(struct sgp_ep *ep);

/* Flags of a post, besides IBV_SEND_SIGNALED, _SOLICITED, _FENCE and _INLINE of ibv_post_send(3). */
enum {
	/* The completion hands the list back (always so for READs and atomics). Implies SIGNALED. */
	SGP_HANDOVER = 1 << 16,
	/* A SEND with more SGEs than the queue pair takes is copied into one chunk of its pool. */
	SGP_LINEARISE = 1 << 17,
	/* Don't ring the doorbell: gather until sgp_ep_submit(), a post without it, or idle polls. */
	SGP_BATCH = 1 << 18,
};

/* One operation of sgp_post(), in the shape of ibv_send_wr. Zero what it does not use. */
struct sgp_wr {
	struct sgp_wr *next;
	void *context;
	struct sgp_sgl *sgl;
	enum ibv_wr_opcode opcode; /* SEND, RDMA_WRITE (both also WITH_IMM), SEND_WITH_INV, RDMA_READ,
	                              ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD */
	int flags;                 /* IBV_SEND_* and SGP_* */
	union {
		uint32_t imm_data; /* big-endian */
		uint32_t invalidate_rkey;
	};
	uint64_t remote_addr; /* of a WRITE, READ or atomic */
	uint32_t rkey;
	uint64_t compare_add, swap; /* of an atomic, as in ibv_send_wr */
	struct ibv_ah *ah;          /* of a send on a UD queue pair */
	uint32_t remote_qpn, remote_qkey;
};

/*
 * Post a chain of operations, with one doorbell.
 *
 * A list of at most the queue pair's inline bytes goes inline by itself (SEND and WRITE): it's copied,
 * and its references drop at once. A READ or WRITE with more SGEs or bytes than one work request takes
 * is split over several, with one completion. Whether a work request carries IBV_SEND_SIGNALED is
 * the endpoint's business: a caller that did not ask for it gets a completion on an error only.
 *
 * Returns 0: all lists' holds are the queue's and the lists are empty. -1 with errno: *bad_wr (if
 * bad_wr is not NULL) is the first operation that was not posted; it and those behind it are as they
 * were, those before it are posted:
 *   EAGAIN      the send queue is full: poll, then try again
 *   E2BIG       more SGEs or holds than the queue pair takes, or than the completion queue hands over;
 *               of a list that is split, more work requests than the queue has
 *   EMSGSIZE    longer than a message, or with IBV_SEND_INLINE than an inline payload, may be; with
 *               SGP_LINEARISE than the largest class
 *   ENOTCONN    the connection is not established yet
 *   ESHUTDOWN   the endpoint is closing or in error
 *   EXDEV       memory that is not registered on the queue pair's protection domain
 *   EACCES      the memory's registration doesn't allow what the device would do with it
 *   EFAULT      foreign memory, and no IBV_SEND_INLINE
 *   EOPNOTSUPP  the device or the queue pair's type does not have the operation; or INLINE of a
 *               SEND_WITH_INV on iWARP; or INLINE or LINEARISE of memory that the processor cannot
 *               reach (import.h)
 *   EINVAL      flags or opcode are wrong, or they don't go together
 *   ENOBUFS     with SGP_LINEARISE: no chunk for the copy
 *   EBUSY       in a checked pool: another post has memory that the device would write
 *   ESTALE      in a checked pool: nobody holds a chunk of the list
 *   another: the provider's errno, of ibv_post_send(3) or ibv_query_qp(3)
 * If the device takes a part only of a split list, or reports an error for what it has queued, the
 * post counts as accepted, and one completion with wc.error set comes when what was taken has ended.
 * (What a poll on another thread had of it before the error was known stands as it was told.)
 */
SGP_HOT_API int sgp_post(struct sgp_ep *ep, struct sgp_wr *wr, struct sgp_wr **bad_wr);

/* One send, as rdma_post_sendv(3); otherwise as sgp_post(). */
SGP_HOT_API int sgp_post_sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags);

/*
 * One RDMA WRITE, as rdma_post_writev(3); otherwise as sgp_post(). Its completion says that the peer
 * has the bytes on InfiniBand and RoCE; on iWARP only that the memory is free again. A SEND behind it
 * finds them there on all.
 */
SGP_HOT_API int sgp_post_writev(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
			    uint64_t remote_addr, uint32_t rkey);

/*
 * One RDMA READ into sgl, as rdma_post_readv(3); otherwise as sgp_post(). Its completion hands the
 * chunks back.
 */
SGP_HOT_API int sgp_post_readv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
			   uint64_t remote_addr, uint32_t rkey);

/* One datagram, as rdma_post_ud_send(3) but for a list; otherwise as sgp_post(). */
SGP_API int sgp_post_ud_sendv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl, int flags,
			      struct ibv_ah *ah, uint32_t remote_qpn);

/*
 * The forms for one slice of a chunk, as rdma_post_send(3) and its like: a list of one, whose
 * reference the post takes over. On -1 the reference is the caller's still. They fail as
 * sgp_sgl_append() too.
 */
SGP_API int sgp_post_send(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
			  size_t length, int flags);
SGP_API int sgp_post_write(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
			   size_t length, int flags, uint64_t remote_addr, uint32_t rkey);
SGP_API int sgp_post_read(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
			  size_t length, int flags, uint64_t remote_addr, uint32_t rkey);
SGP_API int sgp_post_recv(struct sgp_ep *ep, void *context, struct sgp_chunk *chunk, size_t offset,
			  size_t length);

/*
 * Give the device what posts with SGP_BATCH have gathered, with one doorbell.
 *
 * Returns 0, also when there was nothing. -1 with the provider's errno when it did not take all, or
 * ESHUTDOWN on an endpoint that has stopped: each of those operations gets a completion with wc.error
 * set, as their posts had been accepted.
 */
SGP_API int sgp_ep_submit(struct sgp_ep *ep);

/*
 * Submit, and make sure that every unsignalled operation posted so far will be retired: a zero-length
 * signalled RDMA WRITE goes behind them if need be. An idle completion queue does so by itself, after
 * some thousand empty polls, or a millisecond for which its poller slept.
 *
 * Returns 0; -1 with EAGAIN when the send queue is full (a signalled request is on its way then), or
 * as sgp_ep_submit().
 */
SGP_API int sgp_ep_sync(struct sgp_ep *ep);

/*
 * Give up on the oldest operation of the endpoint that was posted with this context and has not been
 * reaped, as when its time is over.
 *
 * A time that is over is not a completion: the device may still read the memory, or write into it.
 * So the context comes out of sgp_poll(), once, with IBV_WC_WR_FLUSH_ERR, wc.error ECANCELED and an
 * empty list (also if nobody had asked for its completion); what it held is quarantined: it stays
 * registered and out of its pool, which is EBUSY to destroy, until the device has completed the
 * operation, of which nothing is heard any more, or the queue pair is gone or reset. Other references
 * to the same chunks (sgp_sgl_clone()) are untouched. The message may arrive at the peer, or not; the
 * room in the queue comes back with the completion. What was only gathered (SGP_BATCH) is never sent,
 * and its holds drop at once; a datagram goes out all the same.
 *
 * Returns 0; -1 with errno, and nothing changed:
 *   ENOENT      no such operation is posted: its completion has been, or will be, handed out
 *   EOPNOTSUPP  it is a receive: a message that lands there would be lost
 *   EINVAL      no endpoint
 * Thread-safe. It looks through the queue: not for a data path.
 */
SGP_API int sgp_cancel(struct sgp_ep *ep, void *context);

/*
 * Post a receive into sgl, as rdma_post_recvv(3) does. It may be posted before the connection is
 * established. Its completion hands the chunks back.
 *
 * On a UD queue pair the list's first slice begins with 40 bytes for the header (struct sgp_wc).
 * Returns and errors as sgp_post_sendv(), but ENOTCONN; EINVAL also for an empty list, on an endpoint
 * whose receives are the library's or a shared queue's, and for a UD list whose first slice is shorter
 * than the header; EACCES where the memory may not be written.
 */
SGP_HOT_API int sgp_post_recvv(struct sgp_ep *ep, void *context, struct sgp_sgl *sgl);

/*
 * Make an address handle for where a datagram came from, as ibv_create_ah_from_wc(3), to answer it with
 * sgp_post_ud_sendv() to wc->src_qp. The completion's list must not have been given away yet.
 *
 * Returns the handle, to be ended by ibv_destroy_ah(3); NULL with EINVAL (no datagram's completion), or
 * the provider's errno.
 */
SGP_API struct ibv_ah *sgp_create_ah_from_wc(struct ibv_pd *pd, const struct sgp_wc *wc,
					     uint8_t port_num);

SGP_END_DECLS

#endif
