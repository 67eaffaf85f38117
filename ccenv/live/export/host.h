/* Stand-ins for the kernel's helpers, and what runs the C outside a kernel: in QUIC stacks and in tests. All state is the caller's. */
#ifndef HOST_STATE

#define SEC(name) static __attribute__((unused))
#define inline_always inline
#define KERNEL_TYPE
#define bpf_sk_storage_get(map, sk, value, flags) (&((struct ccenv_sender *)(sk))->flow)
#define bpf_loop host_loop
#define send ccenv_send /* not that of sockets */

static inline void host_loop(u32 count, long (*callback)(u32, void *), void *data, u64 flags)
{
	u32 i;

	(void)flags;
	for (i = 0; i < count; i++)
		if (callback(i, data))
			return;
}

#elif !defined(HOST_RUN)

struct ccenv_sender {
	struct tcp_sock tp; /* first: what the hooks are given */
	struct flow flow;
};
#ifdef ASKED
#define bpf_map_lookup_elem(map, key) ((void)(key), &host_choice)
#define bpf_map_update_elem(map, key, value, flags) 0
#define bpf_ringbuf_output(map, data, size, flags) ((void)(data))
static struct choice host_choice;
#endif

#else

/* An ACK, or the start of the flow: ACK_DTYPE of ccenv.live.export.twin. Counts are of packets, since the start. */
struct ccenv_seen {
	u64 now_us;
	s32 rtt_us; /* of the newest acknowledged packet; negative: none */
	u32 delivered, lost, data_segs_out, in_flight, app_limited, reord_seen, mss;
	u64 answer; /* of a chooser outside; of 4CP: bits 0 to 31 time-outs, 32 to 62 loss episodes, 63: fast recovery lasts */
};

#ifdef EVER_DELAY
/* The rule's state, window in packets and pacing rate after it: STATE_DTYPE of ccenv.live.export.ever_delay. */
struct ccenv_state {
	s64 v_q48;
	u64 x_q24, rate_q6, spare, entry_q24, pacing_rate_Bps;
	u32 phase, cwnd;
};
#elif defined(FOURCP)
/* Windows, target and pacing rate after it: STATE_DTYPE of ccenv.live.export.fourcp. */
struct ccenv_state {
	s64 wnd_q32;
	u64 window_q32, ssthresh_q32, tarp_q48, updates, srtt_q8, pacing_rate_Bps;
	u32 slow_start, cwnd;
};
#elif defined(WINDOW)
struct ccenv_state {
	u64 pacing_rate_Bps, cwnd;
};
#else
/* Beliefs, window in packets and pacing rate after it: STATE_DTYPE. */
struct ccenv_state {
	u64 step, C_L, C_U, C_L_lambda, q_U, qdel_L_steps, qdel_U, rate, pacing_rate_Bps, lo, hi;
	u32 utilised, cwnd, position, asked;
};
#endif

static void ccenv_see(struct ccenv_sender *s, const struct ccenv_seen *seen)
{
	s->tp.tcp_mstamp = seen->now_us;
	s->tp.mss_cache = seen->mss;
	s->tp.data_segs_out = seen->data_segs_out;
	s->tp.delivered = seen->delivered;
	s->tp.lost = seen->lost;
	s->tp.packets_out = seen->in_flight;
	s->tp.app_limited = seen->app_limited;
	s->tp.reord_seen = seen->reord_seen;
#ifdef ASKED
	host_choice.answer = seen->answer;
#elif defined(FOURCP)
	s->flow.timeouts = seen->answer;
	s->flow.episodes = seen->answer >> 32 & 0x7fffffff;
	s->flow.state = seen->answer >> 63 ? RECOVERING : 0;
#endif
}

static void ccenv_tell(const struct ccenv_sender *s, struct ccenv_state *state)
{
	const struct flow *f = &s->flow;

#ifdef EVER_DELAY
	*state = (struct ccenv_state){
		f->v_q48, f->x_q24, f->rate_q6, f->spare, f->entry_q24, s->tp.inet_conn.icsk_inet.sk.sk_pacing_rate,
		f->phase, s->tp.snd_cwnd,
	};
#elif defined(FOURCP)
	*state = (struct ccenv_state){
		f->wnd_q32, f->window_q32, f->ssthresh_q32, f->tarp_q48, f->updates, f->srtt_q8,
		s->tp.inet_conn.icsk_inet.sk.sk_pacing_rate, f->slow_start, s->tp.snd_cwnd,
	};
#elif defined(WINDOW)
	(void)f;
	*state = (struct ccenv_state){s->tp.inet_conn.icsk_inet.sk.sk_pacing_rate, s->tp.snd_cwnd};
#else
	*state = (struct ccenv_state){
		f->step, f->C_L, f->C_U, f->C_L_lambda, f->q_U, f->qdel_L_steps, f->qdel_U, f->rate,
		s->tp.inet_conn.icsk_inet.sk.sk_pacing_rate,
#ifdef SHIELD
		f->lo, f->hi, f->utilised, s->tp.snd_cwnd, f->position, f->asked,
#else
		0, 0, f->utilised, s->tp.snd_cwnd, 0, 0,
#endif
	};
#endif
}

u64 ccenv_sender_bytes(void)
{
	return sizeof(struct ccenv_sender);
}

/* Begin a flow; rtt_us is that of the handshake. */
void ccenv_begin(struct ccenv_sender *s, const struct ccenv_seen *seen, struct ccenv_state *state)
{
	unsigned long long ctx[1] = {(unsigned long long)s};

	*s = (struct ccenv_sender){0};
	s->tp.snd_cwnd_clamp = ~0U;
	s->tp.inet_conn.icsk_inet.sk.sk_max_pacing_rate = ~0UL;
	ccenv_see(s, seen);
	s->tp.srtt_us = seen->rtt_us > 0 ? (u32)seen->rtt_us << 3 : 0;
	program_init(ctx);
	ccenv_tell(s, state);
}

/* Take an ACK, once however many packets it acknowledges. */
void ccenv_ack(struct ccenv_sender *s, const struct ccenv_seen *seen, struct ccenv_state *state)
{
	struct ack_sample sample = {0, seen->rtt_us, 0};
	unsigned long long ctx[2] = {(unsigned long long)s, (unsigned long long)&sample};

	ccenv_see(s, seen);
	program_pkts_acked(ctx);
	program_cong_control(ctx);
	ccenv_tell(s, state);
}

#endif
