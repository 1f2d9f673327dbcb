/* Threads that kernels run on.

   A kernel's parallel loop is handed over as pieces. Each thread has a shard of them, the same one kernel after kernel, so that it
   finds in its cache what it wrote a moment ago; a thread that is through with its own takes pieces of the others'. Nobody waits
   for a thread that has not begun: when no piece is left the caller closes the gate, and who comes later finds it closed. A core
   that another program keeps busy costs what it is worth, not a standstill.

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
};

typedef struct { void *sync; int32_t pieces; } Launch;
typedef int (*Kernel)(int32_t piece, Launch *launch, void *arguments);

typedef struct {
  _Alignas(LINE) int32_t next;  /* the first piece that nobody has taken */
  int32_t end;
} Shard;

typedef struct {
  _Alignas(LINE) uint32_t job;      /* counts them; sleepers wait for it to change */
  _Alignas(LINE) int32_t gate;      /* how many are at work, and CLOSED if nobody may join them */
  _Alignas(LINE) int32_t asleep;    /* how many sleep, or are about to */
  _Alignas(LINE) int32_t threads;   /* the caller is one of them */
  int32_t present;                  /* how many of the others have not gone home */
  int32_t dismissed;
  int32_t failed;                   /* a piece that failed, plus one */
  Kernel kernel;
  void *arguments;
  Launch launch;
  Shard shards[];
} Team;

typedef struct { Team *team; int32_t place; } Seat;

static __thread Team *own;
static __thread int32_t wanted = 1;
static pthread_key_t leaving;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

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
  pthread_t thread;
  Seat *seat = malloc(sizeof *seat);
  if (seat == NULL) return 0;
  *seat = (Seat){team, place};
  if (pthread_create(&thread, NULL, serve, seat) == 0) return pthread_detach(thread) == 0;
  free(seat);
  return 0;
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
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int32_t place = 1; place < threads; place++)
    if (!engage(team, place)) add(&team->present, -1);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return team;
}

static void dismiss(void *given) {
  Team *team = given;
  if (team == NULL) return;
  __atomic_store_n(&team->dismissed, 1, __ATOMIC_SEQ_CST);
  add(&team->job, 1);
  syscall(SYS_futex, &team->job, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  go_home(team);
}

/* A forked process has none of the team's threads. */
static void forked(void) {
  if (own != NULL) pthread_setspecific(leaving, NULL);
  own = NULL;
}

static void prepare(void) {
  pthread_key_create(&leaving, dismiss);
  pthread_atfork(NULL, NULL, forked);
}

static Team *team_of(int32_t threads) {
  if (own != NULL && own->threads == threads) return own;
  pthread_once(&prepared, prepare);
  dismiss(own);
  own = assemble(threads);
  pthread_setspecific(leaving, own);
  return own;
}

/* -- what is called from outside --------------------------------------------------------------------- */

/* Kernels that this thread starts run on so many from now on. */
void partita_threads(int32_t count) { wanted = count; }

int partita_launch(Kernel kernel, void *arguments, int32_t tasks) {
  Team *team = wanted > 1 ? team_of(wanted) : NULL;
  (void)tasks;
  if (team == NULL || load(&team->gate) != CLOSED) {
    Launch whole = {NULL, 1};
    return kernel(0, &whole, arguments);
  }
  publish(team, kernel, arguments);
  work(team, 0);
  close_gate(team);
  /* TVM keeps what an error says for each thread: it has to be said by the caller's. */
  return team->failed ? kernel(team->failed - 1, &team->launch, arguments) : 0;
}
