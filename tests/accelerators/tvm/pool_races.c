/* Callers whose kernels write plain memory, for ThreadSanitizer: it knows what is ordered by the language's rules alone, whatever
   the processor orders besides. */

#include POOL

#include <stdio.h>

enum { CALLERS = 3, JOBS = 60, THREADS = 4 };

typedef struct { int64_t factor, written[FEW]; } Work;

static int square(int32_t piece, Launch *launch, void *arguments) {
  Work *work = arguments;
  if (piece % 8 == 0) usleep(20);  /* so that the others come in time */
  work->written[piece] = work->factor * piece * launch->pieces;
  return work->factor % 20 == 0 && piece == FEW / 2 ? -1 : 0;
}

static void *call(void *given) {
  for (int64_t job = 1; job <= JOBS; job++) {
    Work *work = calloc(1, sizeof *work);
    work->factor = job;
    partita_threads(2 + job / 20 % THREADS);
    int failed = partita_launch(square, work, 0) != 0;
    for (int piece = 0; piece < FEW; piece++)
      if (work->written[piece] != job * piece * FEW || failed != (job % 20 == 0)) *(int *)given = 1;
    free(work);
    if (job % 20 == 0) usleep(2 * PATIENCE_NS / 1000);
  }
  return NULL;
}

int main(void) {
  pthread_t callers[CALLERS];
  int wrong[CALLERS] = {0};
  for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, &wrong[i]);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  while (idle != NULL) dismiss(unlink_team(&idle));
  usleep(20 * PATIENCE_NS / 1000);  /* they go home */
  return wrong[0] || wrong[1] || wrong[2];
}
