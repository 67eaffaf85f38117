/* The agent in an emulated computer: agent.c, whose devices are TAPs, and whose waits take their packets to the emulator of the
 * network, in shared memory (ask.c). Before it runs, it registers the congestion controls of the BPF objects /NAME.o.
 */
#define _GNU_SOURCE
#include <bpf/libbpf.h>
#include <glob.h>
#include <linux/if_tun.h>
#include <net/if_arp.h>
#include <sys/epoll.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <time.h>
#include "shared.h"

static struct timespec wanted;
static int wanted_by;
static int64_t said; /* when the agent last sent before the first packets were taken: its hello, which sets time 0 */
static void note_send(void);
static int sleep_until(const struct timespec *until);
static int make_poll(void);
static int wait_for(int poll, struct epoll_event *events, int most);

#define main agent_main
#define clock_nanosleep(clock, flags, until, left) sleep_until(until)
#define epoll_create1(flags) make_poll()
#define epoll_wait(poll, events, most, limit) wait_for(poll, events, most)
#define timerfd_settime(timer, flags, wait, old) (wanted = (wait)->it_value, wanted_by = (timer))
#define send(socket, data, size, flags) (note_send(), send(socket, data, size, flags))
#include "agent.c"
#undef main
#undef send
#undef epoll_create1
#undef epoll_wait
#undef timerfd_settime

#define DEVICE "/sys/bus/pci/devices/0000:00:10.0/"
static int taps[2];
static struct shared *shared;
static struct talk *talks[MOST_FLOWS]; /* of the flows that are decided for outside */
static int64_t due = -1, begun;

static void note_send(void)
{
	said = begun ? said : clock_ns();
}

/* The compiler does not know that outb reads and writes memory. */
static void ask(void)
{
	__asm__ volatile("" ::: "memory");
	outb(0, ASK_PORT);
	__asm__ volatile("" ::: "memory");
}

/* Let the emulator take the packets of both devices and give those that are due. The computer stands still meanwhile. */
static void pump(void)
{
	for (int full = 1; full;) {
		full = 0;
		for (int side = 0; side < 2; side++) {
			int count = 0;
			for (; count < SLOTS; count++) {
				struct slot *slot = &shared->sent[side][count];
				ssize_t size = read(taps[side], slot->bytes, sizeof slot->bytes);
				int64_t t = begun ? clock_ns() : said;
				if (size <= 0)
					break;
				slot->size = size;
				for (int j = 0; j < 6; j++)
					slot->bytes[SOURCE + j] = t >> 8 * j;
			}
			shared->n_sent[side] = count;
			full |= count == SLOTS;
		}
		shared->now = clock_ns();
		begun = 1;
		ask();
		due = shared->due;
		for (int side = 0; side < 2; side++)
			for (int i = 0; i < shared->n_due[side]; i++)
				need(write(taps[side], shared->arrived[side][i].bytes, shared->arrived[side][i].size), "device");
	}
}

/* Let flows be decided for whose time has come, before rings overflow; return when the next one is due, or a time. */
static int64_t decide_until(int64_t next)
{
	for (int i = 0; i < MOST_FLOWS; i++) {
		struct talk *talk = talks[i];
		uint32_t info[INFO_BYTES / 4];
		socklen_t size = INFO_BYTES;
		if (!talk || !flows[i].open || !talk->n)
			continue;
		if (clock_ns() >= talk->due_ns || talk->n - talk->taken > ACKS / 2) {
			need(getsockopt(flows[i].sender, IPPROTO_TCP, TCP_INFO, info, &size), "information");
			talk->in_flight = info[6] - info[7] - info[8] + info[9]; /* as the kernel does */
			talk->sent = info[39];
			talk->now_ns = clock_ns();
			shared->talk = *talk;
			shared->flow = i + 1;
			ask();
			shared->flow = 0;
			talk->cwnd = shared->talk.cwnd;
			talk->rate_Bps = shared->talk.rate_Bps;
			talk->due_ns = shared->talk.due_ns;
			talk->taken = shared->talk.n;
		}
		next = talk->due_ns < next ? talk->due_ns : next;
	}
	return next;
}

static int make_poll(void)
{
	int poll = need(epoll_create1(0), "poll");
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = TIMER };
	epoll_ctl(poll, EPOLL_CTL_ADD, taps[0], &event);
	epoll_ctl(poll, EPOLL_CTL_ADD, taps[1], &event);
	return poll;
}

static int wait_for(int poll, struct epoll_event *events, int most)
{
	pump();
	int64_t next = decide_until(wanted.tv_sec * 1000000000LL + wanted.tv_nsec);
	next = due >= 0 && due < next ? due : next;
	struct itimerspec wait = { .it_value = { next / 1000000000, next % 1000000000 } };
	timerfd_settime(wanted_by, TFD_TIMER_ABSTIME, &wait, 0);
	int count = epoll_wait(poll, events, most, -1);
	if (due >= 0 && clock_ns() >= due)
		pump(); /* a row of the log is begun before the agent's report of it */
	return count;
}

static int sleep_until(const struct timespec *until)
{
	int poll = make_poll(), timer = wanted_by = timerfd_create(CLOCK_MONOTONIC, 0);
	struct epoll_event events[3], event = { .events = EPOLLIN };
	epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
	wanted = *until;
	while (clock_ns() < until->tv_sec * 1000000000LL + until->tv_nsec)
		wait_for(poll, events, 3);
	close(poll);
	return close(timer);
}

static int tell(enum libbpf_print_level level, const char *format, va_list list)
{
	return level == LIBBPF_WARN ? vprintf(format, list) : 0;
}

int main(void)
{
	struct ifreq device = { 0 };
	glob_t objects;
	mkdir("/sys", 0755);
	need(mount("sysfs", "/sys", "sysfs", 0, 0), "sysfs");
	mkdir("/dev/net", 0755);
	need(mknod("/dev/net/tun", S_IFCHR | 0600, makedev(10, 200)), "tun");
	int fd = need(open("/tun.ko", O_RDONLY), "tun.ko");
	need(syscall(SYS_finit_module, fd, "", 0), "tun.ko");
	set(DEVICE "enable", "1");
	fd = need(open(DEVICE "resource2", O_RDWR), "shared memory");
	shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		end("shared memory");
	need(ioperm(ASK_PORT, 1, 1), "port");
	for (int side = 0; side < 2; side++) {
		taps[side] = need(open("/dev/net/tun", O_RDWR | O_NONBLOCK), "tun");
		snprintf(device.ifr_name, IFNAMSIZ, "vec%d", side);
		device.ifr_flags = IFF_TAP | IFF_NO_PI;
		need(ioctl(taps[side], TUNSETIFF, &device), "tun");
		device.ifr_hwaddr = (struct sockaddr){ ARPHRD_ETHER, { 2, (char)0xcc, 0x0e, 0, 0, 1 } };
		need(ioctl(taps[side], SIOCSIFHWADDR, &device), "hardware address");
	}
	need(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 }), "priority"); /* before the kernel's own workers */
	libbpf_set_print(tell);
	if (!glob("/*.o", 0, 0, &objects))
		for (size_t i = 0; i < objects.gl_pathc; i++) {
			struct bpf_object *object = bpf_object__open_file(objects.gl_pathv[i], 0);
			struct bpf_map *talk;
			if (!object || bpf_object__load(object) < 0 ||
			    !bpf_map__attach_struct_ops(bpf_object__find_map_by_name(object, "program")))
				end(objects.gl_pathv[i]);
			if (!(talk = bpf_object__find_map_by_name(object, ".bss")))
				continue;
			fd = atoi(objects.gl_pathv[i] + strlen("/flow"));
			talks[fd] = mmap(0, sizeof *talks[fd], PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(talk), 0);
			if (talks[fd] == MAP_FAILED)
				end("talk");
		}
	return agent_main();
}
