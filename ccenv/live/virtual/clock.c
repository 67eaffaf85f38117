/* Virtual time for Debian's user-mode Linux, by LD_PRELOAD: no clock, timer or random number of the host reaches the guest.
 *
 * Every read of the clock and every trap costs the guest a seeded few hundred nanoseconds; when it idles, time jumps to its next
 * timer. Both network devices are sockets; the emulator holds the other ends. A packet carries when it was sent in place of its
 * hardware address. The emulator is asked when its next packet is due, or when one that the guest has sent could be, and answers
 * with the time at which it must be asked again, and what it has written. While it works the guest waits, with its signals blocked, so the order of all
 * events is that of virtual time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NEAR = 200, FAR, QUESTION, ANSWER, NO_PERSONALITY = 81, NEVER_DUE, EMULATOR_ENDED };
enum { HEADER = 14, SOURCE = 6, LEAST_DATA = 200 }; /* bytes; shorter packets bypass the link */
#define SECOND 1000000000LL
#define EPOCH (1700000000LL * SECOND)

static int64_t now = SECOND, expiry = -1, interval, due = -1;
static int64_t clock_cost = 200, trap_cost = 1000; /* nanoseconds, +-50 % */
static int64_t ahead[2];                           /* from when a packet is sent until it can be due at the other end */
static int64_t sent[2];                            /* packets since the last question */
static int64_t waiting[2];                         /* packets that the guest has not read yet */
static uint64_t state = 88172645463325252ULL;      /* of the random numbers */
static int guest, asking;                          /* the kernel's process once it has its timer */

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static int in_guest(void)
{
	return guest && syscall(SYS_getpid) == guest;
}

static void fire(void)
{
	expiry = interval ? expiry + interval : -1;
	siginfo_t information; /* without the process's number, which the guest's random numbers would take in */
	memset(&information, 0, sizeof information);
	information.si_signo = SIGALRM;
	information.si_code = SI_QUEUE;
	syscall(SYS_rt_tgsigqueueinfo, guest, guest, SIGALRM, &information);
}

/* Let the emulator read and write both devices at this time. */
static void ask(void)
{
	uint64_t all = ~0ULL, old;
	int64_t question[] = { now, sent[0], sent[1] }, answer[3];
	int saved = errno;
	if (asking)
		return;
	asking = 1;
	sent[0] = sent[1] = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof old);
	if (syscall(SYS_write, QUESTION, question, sizeof question) != sizeof question ||
	    syscall(SYS_read, ANSWER, answer, sizeof answer) != sizeof answer)
		syscall(SYS_kill, 0, SIGKILL); /* the emulator has ended: so do all processes of the guest */
	due = answer[0];
	waiting[0] += answer[1];
	waiting[1] += answer[2];
	asking = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, 0, sizeof old);
	errno = saved;
}

static void pass(int64_t cost)
{
	now += cost / 2 + (int64_t)(draw() % (uint64_t)(cost + 1));
	if (expiry >= 0 && now >= expiry)
		fire();
	if (due >= 0 && now >= due)
		ask();
}

static struct timespec in_seconds(int64_t t)
{
	return (struct timespec){ .tv_sec = t / SECOND, .tv_nsec = t % SECOND };
}

int clock_gettime(clockid_t which, struct timespec *t)
{
	pass(clock_cost);
	*t = in_seconds((which == CLOCK_REALTIME ? EPOCH : 0) + now);
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	(void)zone;
	pass(clock_cost);
	t->tv_sec = (EPOCH + now) / SECOND;
	t->tv_usec = (EPOCH + now) % SECOND / 1000;
	return 0;
}

int timer_create(clockid_t which, struct sigevent *restrict event, timer_t *restrict timer)
{
	(void)which;
	(void)event;
	guest = syscall(SYS_getpid);
	*timer = (timer_t)1;
	return 0;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict wanted, struct itimerspec *restrict old)
{
	int64_t value = wanted->it_value.tv_sec * SECOND + wanted->it_value.tv_nsec;
	(void)timer;
	(void)flags;
	if (old)
		memset(old, 0, sizeof *old);
	interval = wanted->it_interval.tv_sec * SECOND + wanted->it_interval.tv_nsec;
	expiry = value ? now + value : -1;
	return 0;
}

/* An idle guest asks whether a timer is armed; a packet that is due counts as one. */
int timer_gettime(timer_t timer, struct itimerspec *left)
{
	(void)timer;
	memset(left, 0, sizeof *left);
	if (expiry >= 0) {
		left->it_value = in_seconds(expiry > now ? expiry - now : 1);
		left->it_interval = in_seconds(interval);
	} else
		left->it_value.tv_nsec = 1;
	return 0;
}

int sigsuspend(const sigset_t *mask)
{
	static int (*real)(const sigset_t *);
	if (!real)
		real = dlsym(RTLD_NEXT, "sigsuspend");
	if (in_guest()) {
		if (due >= 0 && (expiry < 0 || due <= expiry)) {
			now = now < due ? due : now;
			ask();
			errno = EINTR;
			return -1;
		}
		if (expiry < 0)
			_exit(NEVER_DUE);
		now = now < expiry ? expiry : now;
		fire();
	}
	return real(mask);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	static pid_t (*real)(pid_t, int *, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "waitpid");
	pid_t got = real(pid, status, options);
	int saved = errno;
	if (guest && !(got < 0 && saved == EINTR))
		pass(trap_cost);
	errno = saved;
	return got;
}

/* Floating-point registers stay in the processes of the guest, which have one thread each; only a signal, by which the guest learns
 * of a page fault, changes them. (The kernel's own buffer is smaller than the registers of some processors.)
 */
long ptrace(enum __ptrace_request request, ...)
{
	static long (*real)(enum __ptrace_request, ...);
	static unsigned char registers[1 << 16] __attribute__((aligned(64)));
	static struct iovec saved;
	va_list list;
	if (!real)
		real = dlsym(RTLD_NEXT, "ptrace");
	va_start(list, request);
	pid_t pid = va_arg(list, pid_t);
	void *address = va_arg(list, void *), *data = va_arg(list, void *);
	va_end(list);
	int state = (request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (long)address == NT_X86_XSTATE;
	if (state && (request == PTRACE_GETREGSET || !saved.iov_len))
		return 0;
	if (state) {
		long result = real(request, pid, address, &saved);
		saved.iov_len = 0;
		return result;
	}
	if (request == PTRACE_CONT && data) {
		saved = (struct iovec){ registers, sizeof registers };
		if (real(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &saved) < 0)
			return -1;
	}
	return real(request, pid, address, data);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	static int (*real)(int, struct mmsghdr *, unsigned, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "sendmmsg");
	if (fd != NEAR && fd != FAR)
		return real(fd, messages, count, flags);
	int64_t latest = now + ahead[fd - NEAR];
	for (unsigned i = 0; i < count; i++) {
		struct msghdr *message = &messages[i].msg_hdr;
		size_t size = 0;
		for (size_t part = 0; part < message->msg_iovlen; part++)
			size += message->msg_iov[part].iov_len;
		if (message->msg_iovlen && message->msg_iov->iov_len >= HEADER)
			for (int j = 0; j < 6; j++)
				((unsigned char *)message->msg_iov->iov_base)[SOURCE + j] = now >> 8 * j;
		if (fd == NEAR && size < LEAST_DATA)
			latest = now;
	}
	int done = real(fd, messages, count, flags);
	if (done > 0) {
		sent[fd - NEAR] += done;
		due = due < 0 || latest < due ? latest : due;
		if (due <= now)
			ask();
	}
	return done;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	static int (*real)(int, struct mmsghdr *, unsigned, int, struct timespec *);
	if (!real)
		real = dlsym(RTLD_NEXT, "recvmmsg");
	int device = fd == NEAR || fd == FAR;
	if (device && !waiting[fd - NEAR]) {
		errno = EAGAIN;
		return -1;
	}
	int done = real(fd, messages, count, flags, timeout);
	if (device && done > 0)
		waiting[fd - NEAR] -= done;
	return done;
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
	unsigned char *at = buffer;
	(void)flags;
	for (size_t i = 0; i < size; i++)
		at[i] = draw() >> 32;
	return size;
}

int open64(const char *path, int flags, ...)
{
	static int (*real)(const char *, int, ...);
	va_list list;
	if (!real)
		real = dlsym(RTLD_NEXT, "open64");
	va_start(list, flags);
	int mode = va_arg(list, int);
	va_end(list);
	return real(!strcmp(path, "/dev/random") || !strcmp(path, "/dev/urandom") ? "/dev/zero" : path, flags, mode);
}

/* CCENV_VIRTUAL: descriptors of both ends, question and answer, the costs, the times ahead, the seed. No random addresses. */
__attribute__((constructor)) static void begin(int count, char **arguments, char **environment)
{
	int ends[4];
	long long numbers[4];
	unsigned long long seed;
	const char *text = getenv("CCENV_VIRTUAL");
	(void)count;
	if (!text || sscanf(text, "%d,%d,%d,%d,%lld,%lld,%lld,%lld,%llu", ends, ends + 1, ends + 2, ends + 3, numbers, numbers + 1,
			    numbers + 2, numbers + 3, &seed) != 9)
		return;
	int old = personality(0xffffffff);
	if (!(old & ADDR_NO_RANDOMIZE)) {
		if (old < 0 || personality(old | ADDR_NO_RANDOMIZE) < 0 || !(personality(0xffffffff) & ADDR_NO_RANDOMIZE))
			_exit(NO_PERSONALITY);
		execve("/proc/self/exe", arguments, environment);
		_exit(NO_PERSONALITY);
	}
	for (int i = 0; i < 4; i++)
		if (dup2(ends[i], NEAR + i) < 0)
			_exit(EMULATOR_ENDED);
	clock_cost = numbers[0];
	trap_cost = numbers[1];
	ahead[0] = numbers[2];
	ahead[1] = numbers[3];
	state ^= (seed + 1) * 0x9E3779B97F4A7C15ULL;
}
