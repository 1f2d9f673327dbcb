/* Runs a subgraph of the device `cpu` in a session of onnxruntime, without Python.

   `partita_compute` takes the place of the library's own Compute function, which calls Python. It does what that function has
   done before with inputs of the same sizes: it calls the main function of a TVM virtual machine on onnxruntime's memory, and
   copies the results to onnxruntime's outputs. Everything else goes to the library's function: sizes that are new, addresses that
   kernels do not take, and errors, so that Python reports them.

   A virtual machine runs one call at a time, and all runs together, those that Python makes too, use no more cores than there
   are: others wait, first come, first served. Python fills the structures; machine_code.py describes them once more. */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

enum {
  INFO = 256,      /* offset of the subgraph in the structure that onnxruntime holds */
  MACHINES = 4,    /* virtual machines of a subgraph, at most */
  COMBINATIONS = 16, /* of sizes that are remembered for a subgraph */
  INPUTS = 512,
  WORDS = 2048,    /* numbers of dimensions, and sizes, of all inputs */
};

typedef void *(*Compute)(void *info, void *state, void *context);

/* Functions of onnxruntime and TVM, and the number of threads for kernels. */
typedef struct {
  void *(*input)(void *context, size_t number, void **value);
  void *(*output)(void *context, size_t number, const int64_t *sizes, size_t rank, void **value);
  void *(*data)(void *value, void **data);
  void *(*shape)(void *value, void **shape);
  void *(*rank)(void *shape, size_t *rank);
  void *(*sizes)(void *shape, int64_t *sizes, size_t rank);
  void (*release_shape)(void *shape);
  void (*release_status)(void *status);
  int (*call)(void *function, TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
  int (*release)(void *object);
  void (*use_threads)(int32_t count); /* NULL if no library with kernels is loaded: then there are none */
} Functions;

/* The kernels for one combination of sizes. */
typedef struct {
  const int64_t *sizes;           /* of each input: the number of dimensions, then their sizes */
  int64_t words, count, flags;
  const int64_t *origins;         /* of the node's outputs, then of flags, of which one that is not 0 is an error: the number of
                                     a result, or of an input i as ~i */
  void *mains[MACHINES];          /* of the virtual machines */
  TVMFFIAny *arguments[MACHINES]; /* so many tensors for each; those of the inputs come first */
} Combination;

typedef struct {
  const Functions *functions;
  Compute slow;
  int64_t inputs, outputs, machines;
  int64_t threads, cores;     /* for a run; cores are at most those that there are */
  const int64_t *numbers;     /* of the node's inputs */
  const int64_t *alignments;  /* of their memory */
  int64_t busy[MACHINES];
  int64_t known;
  Combination *combinations[COMBINATIONS];
} Subgraph;

/* -- whose turn it is ----------------------------------------------------------------------------- */

/* A run of a subgraph, or one that Python makes: then it is of a thread, and zero before the first. */
typedef struct Waiter {
  pthread_cond_t turn;
  Subgraph *subgraph;   /* NULL for a run of Python's */
  int64_t wanted, held; /* cores */
  int machine, waits;
  struct Waiter *next;
} Waiter;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t quiet = PTHREAD_COND_INITIALIZER;
static Waiter *first;
static int64_t all, spare, running; /* cores, and runs of subgraphs */
static int paused, ended;

static int idle_machine(const Subgraph *subgraph) {
  for (int i = 0; i < subgraph->machines; i++)
    if (!subgraph->busy[i]) return i;
  return -1;
}

/* Lets waiters run in their order, up to the first that there are no cores for. */
static void admit(void) {
  Waiter **link = &first;
  while (*link != NULL && !paused && (*link)->wanted <= spare) {
    Waiter *waiter = *link;
    Subgraph *subgraph = waiter->subgraph;
    int machine = subgraph == NULL ? 0 : ended ? -1 : idle_machine(subgraph);
    if (machine < 0) {
      link = &waiter->next;
      continue;
    }
    *link = waiter->next;
    spare -= waiter->held = waiter->wanted;
    waiter->waits = 0;
    waiter->machine = machine;
    if (subgraph != NULL) {
      subgraph->busy[machine] = 1;
      running++;
    }
    pthread_cond_signal(&waiter->turn);
  }
}

static void queue(Waiter *me) {
  Waiter **link = &first;
  while (*link != NULL) link = &(*link)->next;
  *link = me;
  me->next = NULL;
  me->waits = 1;
  admit();
}

static void put_back(int64_t cores) {
  spare += cores;
  if (paused || ended) pthread_cond_broadcast(&quiet);
  admit();
}

static int begin(Subgraph *subgraph) {
  Waiter me = {PTHREAD_COND_INITIALIZER, subgraph, subgraph->cores};
  pthread_mutex_lock(&guard);
  queue(&me);
  while (me.waits) pthread_cond_wait(&me.turn, &guard);
  pthread_mutex_unlock(&guard);
  return me.machine;
}

static void finish(Subgraph *subgraph, int machine) {
  pthread_mutex_lock(&guard);
  subgraph->busy[machine] = 0;
  running--;
  put_back(subgraph->cores);
  pthread_mutex_unlock(&guard);
}

static struct timespec after(int64_t milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += milliseconds / 1000;
  until.tv_nsec += milliseconds % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  return until;
}

/* Gives the cores of a run of Python's to others; it waits for none any more. */
void partita_give(Waiter *me) {
  pthread_mutex_lock(&guard);
  for (Waiter **link = &first; me->waits && *link != NULL; link = &(*link)->next)
    if (*link == me) {
      *link = me->next;
      break;
    }
  int64_t cores = me->held;
  me->held = me->waits = 0;
  put_back(cores);
  pthread_mutex_unlock(&guard);
}

/* Takes cores for a run of Python's, instead of those that its thread has. Nonzero once it has them; it waits at most so long,
   and keeps its place for another try. */
int partita_take(Waiter *me, int64_t cores, int64_t milliseconds) {
  pthread_mutex_lock(&guard);
  if (!me->waits) {
    int64_t held = me->held;
    me->held = 0;
    put_back(held);
    me->wanted = cores;
    queue(me);
  }
  if (me->waits && milliseconds > 0) {
    struct timespec until = after(milliseconds);
    while (me->waits && pthread_cond_timedwait(&me->turn, &guard, &until) != ETIMEDOUT);
  }
  int has = !me->waits;
  pthread_mutex_unlock(&guard);
  return has;
}

/* The number of cores for all runs. */
void partita_cores(int64_t count) { all = spare = count; }

/* No run begins from now on; waits for those that have begun. */
void partita_pause(void) {
  pthread_mutex_lock(&guard);
  paused++;
  while (spare < all) pthread_cond_wait(&quiet, &guard);
  pthread_mutex_unlock(&guard);
}

void partita_resume(void) {
  pthread_mutex_lock(&guard);
  paused--;
  admit();
  pthread_mutex_unlock(&guard);
}

/* In a forked process, which has no other threads, and which no run was copied into. */
void partita_forked(void) {
  guard = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  quiet = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  first = NULL;
  paused = 0;
}

/* The interpreter ends: all further calls go to the library's function. Waits for those that have begun, at most so long. */
void partita_end(int64_t milliseconds) {
  struct timespec until = after(milliseconds);
  __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&guard);
  while (running > 0 && pthread_cond_timedwait(&quiet, &guard, &until) != ETIMEDOUT);
  pthread_mutex_unlock(&guard);
}

/* -- what is known of a subgraph ------------------------------------------------------------------- */

/* From now on calls of these sizes run here. */
void partita_add(Subgraph *subgraph, Combination *combination) {
  pthread_mutex_lock(&guard);
  if (subgraph->known < COMBINATIONS) {
    subgraph->combinations[subgraph->known] = combination;
    __atomic_store_n(&subgraph->known, subgraph->known + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&guard);
}

static const Combination *find(const Subgraph *subgraph, const int64_t *sizes, int64_t words) {
  int64_t known = __atomic_load_n(&subgraph->known, __ATOMIC_ACQUIRE);
  for (int64_t i = 0; i < known; i++) {
    const Combination *combination = subgraph->combinations[i];
    if (combination->words == words && memcmp(combination->sizes, sizes, words * sizeof *sizes) == 0) return combination;
  }
  return NULL;
}

/* -- a call ---------------------------------------------------------------------------------------- */

static int fails(const Functions *functions, void *status) {
  if (status != NULL) functions->release_status(status);
  return status != NULL;
}

/* The number of words in `sizes`; -1 if Python has to look at the inputs. */
static int64_t read_inputs(const Subgraph *subgraph, void *context, int64_t *sizes, void **data) {
  const Functions *ort = subgraph->functions;
  int64_t words = 0;
  for (int64_t i = 0; i < subgraph->inputs; i++) {
    void *value = NULL, *shape = NULL;
    size_t rank = 0;
    if (fails(ort, ort->input(context, subgraph->numbers[i], &value)) || value == NULL) return -1;
    if (fails(ort, ort->data(value, &data[i])) || (uintptr_t)data[i] % subgraph->alignments[i] != 0) return -1;
    if (fails(ort, ort->shape(value, &shape))) return -1;
    int failed = fails(ort, ort->rank(shape, &rank)) || words + 1 + (int64_t)rank > WORDS;
    if (!failed) {
      sizes[words] = rank;
      failed = fails(ort, ort->sizes(shape, &sizes[words + 1], rank));
      words += 1 + rank;
    }
    ort->release_shape(shape);
    if (failed) return -1;
  }
  return words;
}

static DLTensor *tensor_in(const TVMFFIAny *any) { return (DLTensor *)((char *)any->v_obj + sizeof(TVMFFIObject)); }

static int64_t bytes_of(const DLTensor *tensor) {
  int64_t count = tensor->dtype.bits / 8 * tensor->dtype.lanes;
  for (int32_t i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
  return count;
}

/* The tensor of an output, whose memory is stored in `data`. */
static const DLTensor *output_of(
    int64_t origin, const TVMFFIAny *arguments, void *const *inputs, const TVMFFISeqCell *results, char **data) {
  if (origin < 0) {
    *data = inputs[~origin];
    return tensor_in(&arguments[~origin]);
  }
  const DLTensor *tensor = tensor_in(&((const TVMFFIAny *)results->data)[origin]);
  *data = (char *)tensor->data + tensor->byte_offset;
  return tensor;
}

static void *write_output(const Functions *ort, void *context, size_t number, const DLTensor *tensor, const char *from) {
  void *value = NULL, *data = NULL;
  void *status = ort->output(context, number, tensor->shape, tensor->ndim, &value);
  int64_t bytes = bytes_of(tensor);
  if (status == NULL && value != NULL && bytes > 0) {
    status = ort->data(value, &data);
    if (status == NULL) memcpy(data, from, bytes);
  }
  return status;
}

static int is_flagged(const DLTensor *tensor, const char *data) {
  for (int64_t i = 0; i < bytes_of(tensor); i++)
    if (data[i] != 0) return 1;
  return 0;
}

void *partita_compute(void *info, void *state, void *context) {
  Subgraph *subgraph = *(Subgraph **)((char *)info + INFO);
  const Functions *functions = subgraph->functions;
  int64_t sizes[WORDS];
  void *data[INPUTS], *status = NULL;
  const Combination *combination = NULL;
  if (__atomic_load_n(&subgraph->known, __ATOMIC_RELAXED) > 0 && !__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) {
    int64_t words = read_inputs(subgraph, context, sizes, data);
    if (words >= 0) combination = find(subgraph, sizes, words);
  }
  if (combination == NULL) return subgraph->slow(info, state, context);

  TVMFFIAny result = {0};
  int machine = begin(subgraph);
  TVMFFIAny *arguments = combination->arguments[machine];
  for (int64_t i = 0; i < subgraph->inputs; i++) tensor_in(&arguments[i])->data = data[i];
  if (functions->use_threads != NULL) functions->use_threads(subgraph->threads);
  int failed = functions->call(combination->mains[machine], arguments, combination->count, &result) != 0;
  if (failed) {
    finish(subgraph, machine);
    return subgraph->slow(info, state, context);
  }
  const TVMFFISeqCell *results = (const TVMFFISeqCell *)((char *)result.v_obj + sizeof(TVMFFIObject));
  for (int64_t i = subgraph->outputs + combination->flags - 1; i >= 0 && status == NULL && !failed; i--) {
    char *from;
    const DLTensor *tensor = output_of(combination->origins[i], arguments, data, results, &from);
    if (i < subgraph->outputs) status = write_output(functions, context, i, tensor, from);
    else failed = is_flagged(tensor, from);
  }
  functions->release(result.v_obj);
  finish(subgraph, machine); /* not before: a fork waits until nobody holds a lock of TVM's */
  return failed ? subgraph->slow(info, state, context) : status;
}
