/* Threads that kernels run on.

   A kernel's parallel loop is handed over as pieces. Each thread has a shard of them, the same one kernel after kernel, so that it
   finds in its cache what it wrote a moment ago; a thread that is through with its own takes pieces of the others'. Nobody waits
   for a thread that has not begun: when no piece is left the caller closes the gate, and who comes later finds it closed. A core
   that another program keeps busy costs what it is worth, not a standstill.

   A team of threads is lent for one kernel, to the same caller as last time if it is there: of however many threads models are
   called, there are no more teams than kernels run at once. A forked process, which has none of these threads, assembles its own.

   The kernels call `partita_launch` in place of TVM's own TVMBackendParallelLaunch; its arguments are described there. */

#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  LINE = 128,             /* bytes that two cores do not share */
  FEW = 64,               /* pieces of a loop, for up to so many threads: */
  FEW_THREADS = 16,
  MANY = 1024,            /* pieces for more threads */
  CLOSED = 1 << 30,
  PAUSES = 64,            /* between two looks at the clock */
  EAGER_NS = 50000,       /* so long a thread looks for work without letting others have the core, */
  PATIENCE_NS = 1000000,  /* and so long before it sleeps */
  RESTING = 512,          /* threads of teams that nobody has borrowed; beyond that the longest idle go home */
  STACK = 1 << 20,        /* bytes: what the system gives by default may be less than kernels keep there */
};

/* Their newest version came with glibc 2.34, and libraries are exported to older systems too. A linker that does not look into
   glibc takes them without a version: the system finds whatever it has. */
#if defined(PARTITA_PLAIN_SYMBOLS)
#elif defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.17");
#endif

/* Where glibc is younger than this function, it is no part of the library that programs load, but of the one that is linked. */
#if defined(__GLIBC__) && !defined(__x86_64__)
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
#define pthread_atfork(prepare, parent, child) __register_atfork(prepare, parent, child, NULL)
#endif

typedef struct { void *sync; int32_t pieces; } Launch;
typedef int (*Kernel)(int32_t piece, Launch *launch, void *arguments);

typedef struct {
  _Alignas(LINE) int32_t next;  /* the first piece that nobody has taken */
  int32_t end;
} Shard;

typedef struct Team {
  _Alignas(LINE) uint32_t job;      /* counts them; sleepers wait for it to change */
  _Alignas(LINE) int32_t gate;      /* how many are at work, and CLOSED if nobody may join them */
  _Alignas(LINE) int32_t asleep;    /* how many sleep, or are about to */
  _Alignas(LINE) int32_t threads;   /* the caller is one of them */
  int32_t present;                  /* how many have not gone home; the callers count as one */
  int32_t dismissed;
  int32_t failed;                   /* a piece that failed, plus one */
  Kernel kernel;
  void *arguments;
  Launch launch;
  struct Team *next;                /* it has been idle for longer */
  Shard shards[];
} Team;

typedef struct { Team *team; int32_t place; } Seat;

static __thread int32_t wanted = 1;
static __thread int inside;  /* a kernel: one that it starts runs on this thread alone */
static __thread Team *last;  /* the team that ran this thread's latest kernel, if it is still there */

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static Team *idle;  /* the teams that nobody has borrowed, latest first, */
static int32_t resting;  /* and how many threads they are */

/* Which accesses are ordered, and why. On x86 most of them would be without it; on Arm none is.

   gate       The caller's store of 0 comes after the plain stores of the job (kernel, arguments, launch, failed, the shards), and a
              thread that joins has read it, or a count that others made of it: it sees the job. A thread counts itself out after its
              pieces, and the caller reads CLOSED alone after that: it sees what the pieces stored, and no one reads the job any more
              when the caller writes the next one. A thread that joins late with an old count in its hand fails to exchange it, or
              joins the job that is open now, which it then sees.
   job,       The caller counts a job and then reads who sleeps; a thread counts itself asleep and then reads the job. One of both
   asleep     sees the other, since these four are in one order for all threads: acquire and release alone would not do.
   next       Taking a piece is a count, so that none is taken twice. The look before it is relaxed: an old number costs a count in
              vain, or a piece is left for the others. What a piece reads is ordered by the gate.
   failed     Stored before its thread leaves the gate, read after the gate is closed.
   dismissed  Stored before the job is counted, read after the count was seen.
   present    Whoever counts the last one frees the team, after all that the others did with it.

   The rest is a thread's own, or under the mutex (the list of teams, and a team's way from one caller to the next), or written
   before the threads begin (threads, and the team's first state). */
#define load(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define add(p, n) __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST)

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* -- one job ------------------------------------------------------------------------------------ */

static void work(Team *team, int32_t place) {
  for (int32_t i = 0; i < team->threads; i++) {
    Shard *shard = &team->shards[(place + i) % team->threads];
    int32_t piece;
    while (__atomic_load_n(&shard->next, __ATOMIC_RELAXED) < shard->end && (piece = add(&shard->next, 1)) < shard->end)
      if (team->kernel(piece, &team->launch, team->arguments) != 0) __atomic_store_n(&team->failed, piece + 1, __ATOMIC_SEQ_CST);
  }
}

static int join(Team *team) {
  int32_t gate = load(&team->gate);
  while (!(gate & CLOSED))
    if (__atomic_compare_exchange_n(&team->gate, &gate, gate + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 1;
  return 0;
}

static void publish(Team *team, Kernel kernel, void *arguments) {
  int32_t pieces = team->threads > FEW_THREADS ? MANY : FEW;
  team->kernel = kernel;
  team->arguments = arguments;
  team->launch.pieces = pieces;
  team->failed = 0;
  for (int32_t i = 0; i < team->threads; i++) {
    team->shards[i].next = (int32_t)((int64_t)pieces * i / team->threads);
    team->shards[i].end = (int32_t)((int64_t)pieces * (i + 1) / team->threads);
  }
  __atomic_store_n(&team->gate, 0, __ATOMIC_SEQ_CST);
  add(&team->job, 1);
  if (load(&team->asleep) > 0) syscall(SYS_futex, &team->job, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void close_gate(Team *team) {
  __atomic_fetch_or(&team->gate, CLOSED, __ATOMIC_SEQ_CST);
  for (int i = 1; load(&team->gate) != CLOSED; i++)
    if (i % PAUSES == 0) sched_yield(); else pause_briefly();
}

/* -- the others --------------------------------------------------------------------------------- */

static void await(Team *team, uint32_t seen) {
  int64_t begin = now(), waited = 0;
  while (waited < PATIENCE_NS) {
    for (int i = 0; i < PAUSES; i++) {
      if (load(&team->job) != seen) return;
      pause_briefly();
    }
    waited = now() - begin;
    if (waited > EAGER_NS) sched_yield();
  }
  add(&team->asleep, 1);
  while (load(&team->job) == seen) syscall(SYS_futex, &team->job, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  add(&team->asleep, -1);
}

static void go_home(Team *team) {
  if (add(&team->present, -1) == 1) free(team);
}

static void *serve(void *given) {
  Seat seat = *(Seat *)given;
  uint32_t seen = 0;
  free(given);
  while (!load(&seat.team->dismissed)) {
    await(seat.team, seen);
    seen = load(&seat.team->job);
    if (!join(seat.team)) continue;
    work(seat.team, seat.place);
    add(&seat.team->gate, -1);
  }
  go_home(seat.team);
  return NULL;
}

/* -- a team --------------------------------------------------------------------------------------- */

static int engage(Team *team, int32_t place) {
  pthread_attr_t attributes;
  pthread_t thread;
  Seat *seat = malloc(sizeof *seat);
  if (seat == NULL) return 0;
  *seat = (Seat){team, place};
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK);
  int engaged = pthread_create(&thread, &attributes, serve, seat) == 0;
  pthread_attr_destroy(&attributes);
  if (!engaged) free(seat);
  return engaged;
}

/* As many threads as the system gives; the pieces of those that it does not are taken by the others. */
static Team *assemble(int32_t threads) {
  sigset_t all, before;
  Team *team = NULL;
  if (posix_memalign((void **)&team, LINE, sizeof *team + threads * sizeof(Shard)) != 0) return NULL;
  memset(team, 0, sizeof *team);
  team->threads = threads;
  team->gate = CLOSED;
  team->present = threads;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  for (int32_t place = 1; place < threads; place++)
    if (!engage(team, place)) add(&team->present, -1);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return team;
}

static void dismiss(Team *team) {
  __atomic_store_n(&team->dismissed, 1, __ATOMIC_SEQ_CST);
  add(&team->job, 1);
  syscall(SYS_futex, &team->job, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  go_home(team);
}

/* -- who has which team ---------------------------------------------------------------------------- */

static void forked(void) {
  guard = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  idle = NULL;
  resting = 0;
}

static Team *unlink_team(Team **link) {
  Team *team = *link;
  *link = team->next;
  resting -= team->threads;
  return team;
}

/* Of the idle teams of so many threads the one that this thread had last, or else the latest. */
static Team **suitable(int32_t threads) {
  Team **found = NULL;
  for (Team **link = &idle; *link != NULL; link = &(*link)->next)
    if ((*link)->threads == threads && (found == NULL || *link == last)) found = link;
  return found;
}

static Team *borrow(int32_t threads) {
  static int prepared;
  pthread_mutex_lock(&guard);
  if (!prepared) prepared = pthread_atfork(NULL, NULL, forked) == 0;
  Team **found = suitable(threads), *team = found != NULL ? unlink_team(found) : NULL;
  pthread_mutex_unlock(&guard);
  return last = team != NULL ? team : assemble(threads);
}

static void give_back(Team *team) {
  Team *leaving = NULL;
  pthread_mutex_lock(&guard);
  team->next = idle;
  idle = team;
  resting += team->threads;
  while (resting > RESTING && team->next != NULL) {
    Team **link = &team->next;
    while ((*link)->next != NULL) link = &(*link)->next;
    Team *oldest = unlink_team(link);
    oldest->next = leaving;
    leaving = oldest;
  }
  pthread_mutex_unlock(&guard);
  while (leaving != NULL) {
    Team *one = leaving;
    leaving = one->next;
    dismiss(one);
  }
}

/* -- what is called from outside --------------------------------------------------------------------- */

/* Kernels that this thread starts run on so many from now on. */
void partita_threads(int32_t count) { wanted = count; }

int partita_launch(Kernel kernel, void *arguments, int32_t tasks) {
  Team *team = wanted > 1 && !inside ? borrow(wanted) : NULL;
  (void)tasks;
  if (team == NULL) {
    Launch whole = {NULL, 1};
    return kernel(0, &whole, arguments);
  }
  inside = 1;
  publish(team, kernel, arguments);
  work(team, 0);
  close_gate(team);
  /* TVM keeps what an error says for each thread: it has to be said by the caller's. */
  int result = team->failed ? kernel(team->failed - 1, &team->launch, arguments) : 0;
  inside = 0;
  give_back(team);
  return result;
}
