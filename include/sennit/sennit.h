/* sennit.h: the C interface of sennit, collective communication for jobs whose network is not flat.
 *
 * A communicator connects `size` ranks. Every collective is called by all ranks of a communicator,
 * in the same order, with the same count, type, operation and root. Counts are in elements, sizes
 * in bytes.
 *
 * Threads: any number may use communicators at once, also the same one, to start calls and to test,
 * wait for and free works; only one at a time uses the same work. Threads that make collective
 * calls on the same communicator, or messages of the same peer and tag, must see to their order:
 * one begins its call after another's has returned, where a _start function returns at once. While
 * sennit_comm_finalize runs no other thread uses the communicator or its works, and none uses the
 * handle once sennit_comm_destroy was called.
 *
 *   sennit_comm_t comm;
 *   if (sennit_comm_init_env(&comm, NULL) != SENNIT_OK) {
 *     fputs(sennit_last_error(), stderr);
 *     exit(1);
 *   }
 *   float x[4] = {1, 2, 3, 4};
 *   sennit_all_reduce(x, x, 4, SENNIT_FLOAT32, SENNIT_SUM, comm);  // x: the sum over all ranks
 *   sennit_comm_finalize(comm);
 *   sennit_comm_destroy(comm);
 *
 * In place: pass the same pointer as input and output (all-reduce, broadcast, reduce, all-to-all);
 * for all-gather the input is block `rank` of the output; for reduce-scatter the output is block
 * `rank` of the input, as in NCCL.
 *
 * Every function returns a sennit_status_t; sennit_last_error() gives the text of the calling
 * thread's last error. After an error other than SENNIT_INVALID_ARGUMENT the outputs are undefined
 * and the communicator has failed: every later call on it returns the same error; destroy or abort
 * it.
 *
 * fork(): the child may free the handles that it inherited (sennit_comm_destroy, sennit_work_free),
 * or leave them, and end as it likes; neither waits for anything nor disturbs the parent's job, and
 * what is behind the handles stays until the child ends. Every other call on them returns
 * SENNIT_INVALID_ARGUMENT. Memory from sennit_mem_alloc can still be read and written; it may be
 * the parent's too, or a copy. The child may make communicators of its own, but not over UCX if its
 * parent has used that.
 */
#ifndef SENNIT_SENNIT_H
#define SENNIT_SENNIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "sennit runs on POSIX systems"
#endif
#define SENNIT_EXPORT __attribute__((visibility("default")))
#define SENNIT_VERSION_MAJOR 0
#define SENNIT_VERSION_MINOR 1
#define SENNIT_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sennit_comm* sennit_comm_t;
typedef struct sennit_work* sennit_work_t;

/* Behind each error: what died, from the smallest to the largest: this call, the link, a peer, the
 * communicator, the process. */
typedef enum sennit_status_t {
  SENNIT_OK = 0,
  /* not an error: the work has not completed */
  SENNIT_IN_PROGRESS = 1,
  /* call: an argument is off; nothing was started, the communicator is intact, and the call can be
   * put right: it fails once other ranks have missed it for some seconds */
  SENNIT_INVALID_ARGUMENT = 2,
  /* communicator: ranks called different collectives, counts, types, ops or roots, or one's
   * arguments were off and it called nothing else */
  SENNIT_MISMATCH = 3,
  /* link: a connection broke while both its ranks live */
  SENNIT_LINK_FAILED = 4,
  /* peer: one or more ranks died; sennit_comm_failed_ranks names them */
  SENNIT_PEER_FAILED = 5,
  /* peer: a rank did not arrive or did not answer in time */
  SENNIT_TIMED_OUT = 6,
  /* communicator: aborted by this or another rank */
  SENNIT_ABORTED = 7,
  /* process: memory, /dev/shm, file descriptors, ports; the text has the remedy */
  SENNIT_OUT_OF_RESOURCES = 8,
  /* call: a file, launcher, fabric or algorithm that was named is not there */
  SENNIT_NOT_FOUND = 9,
  /* call: not built in, or not possible on this machine */
  SENNIT_UNSUPPORTED = 10,
  /* process: wrong or missing secret */
  SENNIT_REFUSED = 11,
  /* process: a defect in sennit; please report it */
  SENNIT_INTERNAL = 12
} sennit_status_t;

typedef enum sennit_type_t {
  SENNIT_INT8 = 0,
  SENNIT_UINT8 = 1,
  SENNIT_INT32 = 2,
  SENNIT_UINT32 = 3,
  SENNIT_INT64 = 4,
  SENNIT_UINT64 = 5,
  SENNIT_FLOAT16 = 6,
  SENNIT_BFLOAT16 = 7,
  SENNIT_FLOAT32 = 8,
  SENNIT_FLOAT64 = 9,
  SENNIT_FLOAT8_E4M3 = 10, /* OCP 8-bit: 4 exponent, 3 mantissa bits, no infinity */
  SENNIT_FLOAT8_E5M2 = 11  /* OCP 8-bit: 5 exponent, 2 mantissa bits */
} sennit_type_t;
#define SENNIT_TYPE_COUNT 12

/* Reductions. Integers wrap; avg of integers truncates toward zero. 16-bit and 8-bit floats
 * accumulate in fp32 within a step. What sennit_op_create_premul_sum returns is valid as well. */
typedef enum sennit_op_t {
  SENNIT_SUM = 0,
  SENNIT_PROD = 1,
  SENNIT_MIN = 2,
  SENNIT_MAX = 3,
  SENNIT_AVG = 4,
  SENNIT_BAND = 5, /* bitwise and, or, exclusive or: of integer types */
  SENNIT_BOR = 6,
  SENNIT_BXOR = 7,
  SENNIT_OP_CUSTOM_BASE = 16 /* first value that sennit_op_create_premul_sum returns */
} sennit_op_t;

/* Enough for an address, a port, a nonce and the job's secret. Keep it secret: who holds it may
 * join the job. */
#define SENNIT_UNIQUE_ID_BYTES 128
typedef struct sennit_unique_id_t {
  char internal[SENNIT_UNIQUE_ID_BYTES];
} sennit_unique_id_t;

/* Zero-initialise, then set size and version: sennit_config_t c = SENNIT_CONFIG_INIT; */
typedef struct sennit_config_t {
  size_t size;      /* sizeof(sennit_config_t) */
  uint32_t version; /* 1 */
  /* fabric file, or NULL: SENNIT_FABRIC, /etc/sennit/fabric, then discovery */
  const char* fabric;
  const char* algorithm; /* as SENNIT_ALGORITHM, or NULL */
  /* how long to wait for ranks that never come; 0: SENNIT_ARRIVAL_TIMEOUT; INT32_MAX: for
   * ever (24 days), but as SENNIT_ARRIVAL_TIMEOUT says where that is set in the environment */
  int32_t arrival_timeout_ms;
  /* of communicators of some of the job's ranks: as SENNIT_CONCURRENCY, or NULL */
  const char* concurrency;
  /* NULL, or whether the caller wants the start no more: asked with `interrupted_user`, by the
   * calling thread, about every 50 ms while sennit_comm_init_rank or _env waits. Not 0: unless it
   * is complete by then the start ends with SENNIT_ABORTED within two seconds, also on the ranks
   * that this one has reached; the others wait for it as for one that does not come. It must not
   * start a job, and is not called again. */
  int (*interrupted)(void* interrupted_user);
  void* interrupted_user;
} sennit_config_t;
#define SENNIT_CONFIG_INIT \
  { sizeof(sennit_config_t), 1, NULL, NULL, 0, NULL, NULL, NULL }

/* ---- communicators ---- */

/* Makes the id that one rank creates and hands to all others by its own means. Opens the listening
 * port. */
SENNIT_EXPORT sennit_status_t sennit_get_unique_id(sennit_unique_id_t* id);
/* The id of a job whose ranks all know where rank 0 is to listen: "host:port", or "[ipv6]:port".
 * Each makes it for itself, with the same text of `address` and of SENNIT_SECRET, which must be
 * set. It serves one job after the other. */
SENNIT_EXPORT sennit_status_t sennit_get_unique_id_at(const char* address, sennit_unique_id_t* id);
/* No rank will come with this id of sennit_get_unique_id: closes its port, where this process made
 * it and its job has not begun. Without this the port closes by itself after ten times
 * SENNIT_ARRIVAL_TIMEOUT. */
SENNIT_EXPORT sennit_status_t sennit_forget_unique_id(const sennit_unique_id_t* id);
/* Collective over `size` ranks with the same id; rank in [0, size). config may be NULL. */
SENNIT_EXPORT sennit_status_t sennit_comm_init_rank(sennit_comm_t* comm, int size,
                                                    const sennit_unique_id_t* id, int rank,
                                                    const sennit_config_t* config);
/* From the launcher's environment: Open MPI or PMIx, Slurm, or torchrun's RANK, WORLD_SIZE,
 * MASTER_ADDR, ... May be called again, before or after what it made is destroyed: each time makes
 * a job of its own. */
SENNIT_EXPORT sennit_status_t sennit_comm_init_env(sennit_comm_t* comm,
                                                   const sennit_config_t* config);
/* From an MPI communicator: pass a pointer to your MPI_Comm. In libsennit_mpi. */
SENNIT_EXPORT sennit_status_t sennit_comm_init_mpi(sennit_comm_t* comm, const void* mpi_comm,
                                                   const sennit_config_t* config);
/* `size` ranks as threads of this process: comms[i] is rank i's, each to be used by a thread of its
 * own. Waits for nobody else, and so is not interrupted. */
SENNIT_EXPORT sennit_status_t sennit_comm_init_local(sennit_comm_t* comms, int size,
                                                     const sennit_config_t* config);

#define SENNIT_NO_COLOR (-1)
/* Collective. Ranks of the same color >= 0 form a communicator, ordered by key, then by rank in
 * `comm`. A rank with SENNIT_NO_COLOR gets *result = NULL. */
SENNIT_EXPORT sennit_status_t sennit_comm_split(sennit_comm_t comm, int color, int key,
                                                sennit_comm_t* result);
/* A communicator of some of comm's ranks, made by them alone: no other rank takes part. `ranks` has
 * `count` ranks of comm, each once, the caller's among them, in the same order on all; what stands
 * at i becomes rank i. Several threads may make groups out of comm at once, also while another one
 * uses it: `tag`, 0 or more, tells their calls apart. Works on a communicator that was aborted as
 * well, but not on one that has lost a rank: SENNIT_PEER_FAILED. SENNIT_MISMATCH: lists differ.
 * After an error other than SENNIT_INVALID_ARGUMENT it returns that for comm ever after, while
 * comm's calls go on. */
SENNIT_EXPORT sennit_status_t sennit_comm_create_group(sennit_comm_t comm, const int ranks[],
                                                       int count, int tag, sennit_comm_t* result);
SENNIT_EXPORT sennit_status_t sennit_comm_dup(sennit_comm_t comm, sennit_comm_t* result);
/* Completes the calls that were started and not waited for, then waits for all ranks. Destroy
 * afterwards. The handles of those calls stay to be waited for, which gives each its result, and to
 * be freed. If one of them failed, its error is returned. */
SENNIT_EXPORT sennit_status_t sennit_comm_finalize(sennit_comm_t comm);
/* Frees the handle. Waits for what is still under way in a stream, and so for the other ranks' part
 * in that; else for no other rank. */
SENNIT_EXPORT sennit_status_t sennit_comm_destroy(sennit_comm_t comm);
/* Any thread. Fails all work on all ranks with SENNIT_ABORTED and returns within a bounded time. */
SENNIT_EXPORT sennit_status_t sennit_comm_abort(sennit_comm_t comm);
/* For libraries that stand in front of this one: this rank's next call on comm, or what it was to
 * make out of comm, was off, and is not made. Where other ranks wait for it, and this one makes
 * none in its place for some seconds, they get SENNIT_MISMATCH with this rank and `why`, as they do
 * where it was refused here. Any thread. */
SENNIT_EXPORT sennit_status_t sennit_comm_refuse(sennit_comm_t comm, const char* why);
/* SENNIT_OK, or the error that the communicator failed with. Any thread. */
SENNIT_EXPORT sennit_status_t sennit_comm_get_async_error(sennit_comm_t comm);
/* Ranks known dead: writes up to `capacity` of them ascending, and how many there are to *count. */
SENNIT_EXPORT sennit_status_t sennit_comm_failed_ranks(sennit_comm_t comm, int* ranks, int capacity,
                                                       int* count);
/* What the job's rank 0 finds of the job while it runs: `json`, which is gone when the function
 * returns, has at least
 *   {"verdict": "slow_link", "late_rank", "starved_rank" or "hang", "withdrawn": true or false,
 *    "sentence": "..."}
 * and what src/watch/README.md lists. Withdrawn: what was told before holds no more. A verdict that
 * blames one of the same is told again as it changes, and stands in place of the one before. */
typedef void (*sennit_verdict_function_t)(const char* json, void* user);
/* Has `told` called with each verdict from now on, on a thread of the library, until comm is
 * destroyed or this is called again; NULL: with none. A hang is told on all ranks, anything else on
 * the job's rank 0 alone (once that has died, on its successor), and nothing where SENNIT_WATCH is
 * 0. `told` should not take long, and calls nothing of this library. When this, or
 * sennit_comm_destroy, returns, it is not being called any more. One thread at a time for each
 * comm. */
SENNIT_EXPORT sennit_status_t sennit_comm_on_verdict(sennit_comm_t comm,
                                                     sennit_verdict_function_t told, void* user);
SENNIT_EXPORT sennit_status_t sennit_comm_rank(sennit_comm_t comm, int* rank);
SENNIT_EXPORT sennit_status_t sennit_comm_size(sennit_comm_t comm, int* size);
/* Calls on memory of a CUDA device, and on host memory that is registered with CUDA, go into
 * `stream` from now on, a CUstream or cudaStream_t of that device (NULL: the legacy default stream
 * of the calling thread's current device). They return when they are enqueued, are ordered with the
 * stream as a kernel is, and fail later: ask sennit_comm_get_async_error. Calls on other host
 * memory are made when the stream has come to its end, and are done when they return. In a stream
 * that is captured a call becomes part of the graph, and is made each time that the graph is
 * launched; all ranks capture it, and launch it equally often. One launch after the other: two that
 * are made of one graph never run at once. A graph has no calls on other host memory, none with a
 * handle and none from SENNIT_ANY_SOURCE, and passes by what has failed or is destroyed; all ranks'
 * launches have ended before a communicator is finalized or destroyed. One device a communicator;
 * any number of streams, one after the other. Of the streams of one group none waits for another,
 * as the default stream and one without CU_STREAM_NON_BLOCKING do: the group would never end. Ranks
 * that share a process and a device have streams of their own that do not wait for one another:
 * other calls are SENNIT_INVALID_ARGUMENT. A stream may come to a call late: that is no error, and
 * a message waits for its peer's as long as it takes. SENNIT_NOT_FOUND where there is no driver of
 * CUDA, SENNIT_UNSUPPORTED where this build has no kernel or the device is too old. Local. */
SENNIT_EXPORT sennit_status_t sennit_comm_set_stream(sennit_comm_t comm, void* stream);
/* Position of this rank in fabric order: neighbours in it are near in the network. */
SENNIT_EXPORT sennit_status_t sennit_comm_fabric_position(sennit_comm_t comm, int* position);

/* ---- operations and memory ---- */

/* op = sum of (scalar * x). `scalar` points at one element of `type`; it is copied. Local to
 * `comm`. */
SENNIT_EXPORT sennit_status_t sennit_op_create_premul_sum(sennit_op_t* op, const void* scalar,
                                                          sennit_type_t type, sennit_comm_t comm);
/* The same, but nothing is copied: each call, and each launch of a graph, reads `scalar` when the
 * stream comes to it. That is memory of the device of comm's stream, or host memory registered with
 * CUDA, and has to stay until all calls with `op` are over. In memory of a device it is for calls
 * that go into the stream. SENNIT_INVALID_ARGUMENT: comm has no stream, or no device reaches
 * `scalar`. */
SENNIT_EXPORT sennit_status_t sennit_op_create_premul_sum_in_stream(sennit_op_t* op,
                                                                    const void* scalar,
                                                                    sennit_type_t type,
                                                                    sennit_comm_t comm);
/* Calls that were made with it keep what they need of it. */
SENNIT_EXPORT sennit_status_t sennit_op_destroy(sennit_op_t op, sennit_comm_t comm);
/* Memory that peers on this host can read in place (64-byte aligned, zeroed). Any memory works;
 * this is faster. */
SENNIT_EXPORT sennit_status_t sennit_mem_alloc(sennit_comm_t comm, size_t bytes, void** memory);
SENNIT_EXPORT sennit_status_t sennit_mem_free(sennit_comm_t comm, void* memory);
/* Makes memory of your own as fast as that: peers on this host can read it in place. Local to the
 * process and costs two copies of the range, so do it once for buffers that are used often; it
 * counts for all communicators of the job. Addresses and contents stay. `bytes` and alignment are
 * free; a range that holds no whole page of 4 KiB gains nothing.
 *
 *   float* x = malloc(n * sizeof *x);
 *   sennit_mem_register(comm, x, n * sizeof *x);
 *   ...
 *   sennit_mem_deregister(comm, x);
 *   free(x);
 *
 * How, and what follows from it: the pages are replaced by shared ones with the same bytes, and by
 * private ones again when deregistered. During both calls no other thread may use the range, and no
 * collective may use it. After fork() parent and child may write to the same pages. mlock, huge
 * pages and placement on NUMA nodes are lost; memory that a device knows (cudaHostRegister,
 * ibv_reg_mr) must not be registered, nor the stack of a thread.
 *
 * The same range again counts: deregister it as often. SENNIT_INVALID_ARGUMENT: NULL (with bytes >
 * 0), memory that is not mapped, another range that overlaps. SENNIT_UNSUPPORTED: mapped, but of a
 * kind whose pages cannot be replaced: a file's or a device's, shared, of huge pages, read-only,
 * the calling thread's stack; use it unregistered. SENNIT_OUT_OF_RESOURCES: no memory. After an
 * error nothing has changed. Memory from sennit_mem_alloc, zero bytes and jobs in which nothing is
 * to be gained are fine.
 */
SENNIT_EXPORT sennit_status_t sennit_mem_register(sennit_comm_t comm, void* memory, size_t bytes);
/* `memory` as it was registered; NULL is nothing. Call it before you free or unmap the memory.
 * Where that was forgotten: the shared pages stay taken until it is called, an allocator may find
 * bytes where it expects zeros, but sennit neither sends from its old pages (it looks whether they
 * are still there) nor touches what has come to that address since. What is still registered when
 * the job's last communicator is destroyed is deregistered then. SENNIT_INVALID_ARGUMENT: not
 * registered, or still being sent. */
SENNIT_EXPORT sennit_status_t sennit_mem_deregister(sennit_comm_t comm, void* memory);

/* ---- collectives ----
 * Each has a nonblocking twin with suffix _start, which takes a sennit_work_t* last; buffers belong
 * to the work until it has completed. A blocking call is start + wait + free. */

/* send, recv: count elements; every rank gets the result over all ranks. */
SENNIT_EXPORT sennit_status_t sennit_all_reduce(const void* send, void* recv, size_t count,
                                                sennit_type_t type, sennit_op_t op,
                                                sennit_comm_t comm);
/* send: size * count elements, recv: count; rank r gets block r. */
SENNIT_EXPORT sennit_status_t sennit_reduce_scatter(const void* send, void* recv, size_t count,
                                                    sennit_type_t type, sennit_op_t op,
                                                    sennit_comm_t comm);
/* send: count elements, recv: size * count. */
SENNIT_EXPORT sennit_status_t sennit_all_gather(const void* send, void* recv, size_t count,
                                                sennit_type_t type, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_broadcast(const void* send, void* recv, size_t count,
                                               sennit_type_t type, int root, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_reduce(const void* send, void* recv, size_t count,
                                            sennit_type_t type, sennit_op_t op, int root,
                                            sennit_comm_t comm);
/* send: count elements; recv (root only): size * count. */
SENNIT_EXPORT sennit_status_t sennit_gather(const void* send, void* recv, size_t count,
                                            sennit_type_t type, int root, sennit_comm_t comm);
/* send (root only): size * count elements; recv: count. */
SENNIT_EXPORT sennit_status_t sennit_scatter(const void* send, void* recv, size_t count,
                                             sennit_type_t type, int root, sennit_comm_t comm);
/* send, recv: size * count elements; block j of send goes to rank j, block i of recv comes from
 * rank i. */
SENNIT_EXPORT sennit_status_t sennit_all_to_all(const void* send, void* recv, size_t count,
                                                sennit_type_t type, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_barrier(sennit_comm_t comm);
/* What comes must have the count and type that is expected, or the communicator fails
 * (SENNIT_MISMATCH), also where a rank sends to itself. */
SENNIT_EXPORT sennit_status_t sennit_send(const void* send, size_t count, sennit_type_t type,
                                          int peer, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_recv(void* recv, size_t count, sennit_type_t type, int peer,
                                          sennit_comm_t comm);
/* The same with a tag, 0 or more: a receive takes the first message of its peer and tag that no
 * receive before it took. sennit_send and sennit_recv are those of tag 0. As the peer of a receive
 * SENNIT_ANY_SOURCE is any other rank of the communicator; `source`, which may be NULL, receives
 * the one whose message came. Receives of the same tag that were started later wait behind it. */
#define SENNIT_ANY_SOURCE (-1000) /* far from what a wrong sum makes of a rank */
SENNIT_EXPORT sennit_status_t sennit_send_tagged(const void* send, size_t count, sennit_type_t type,
                                                 int peer, int tag, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_recv_tagged(void* recv, size_t count, sennit_type_t type,
                                                 int peer, int tag, sennit_comm_t comm,
                                                 int* source);

/* v-variants: counts[] and displacements[] have `size` entries, in elements, and are the same on
 * every rank (all-gather, reduce-scatter) or matter on the root (gather, scatter; others pass their
 * own entry filled in). displacements may be NULL: blocks lie one after the other. A buffer may be
 * NULL where this rank uses no element of it. */
SENNIT_EXPORT sennit_status_t sennit_all_gather_v(const void* send, void* recv,
                                                  const size_t counts[],
                                                  const size_t displacements[], sennit_type_t type,
                                                  sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_reduce_scatter_v(const void* send, void* recv,
                                                      const size_t counts[], sennit_type_t type,
                                                      sennit_op_t op, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_gather_v(const void* send, void* recv, const size_t counts[],
                                              const size_t displacements[], sennit_type_t type,
                                              int root, sennit_comm_t comm);
SENNIT_EXPORT sennit_status_t sennit_scatter_v(const void* send, void* recv, const size_t counts[],
                                               const size_t displacements[], sennit_type_t type,
                                               int root, sennit_comm_t comm);
/* What a rank sends to itself is as much as it receives from itself. In place, with send == recv, a
 * rank that sends and receives has the same counts and displacements on both sides. */
SENNIT_EXPORT sennit_status_t sennit_all_to_all_v(const void* send, const size_t send_counts[],
                                                  const size_t send_displacements[], void* recv,
                                                  const size_t recv_counts[],
                                                  const size_t recv_displacements[],
                                                  sennit_type_t type, sennit_comm_t comm);

/* The nonblocking twins: each starts its call and returns a handle in *work, which the caller waits
 * for and frees. After an error nothing was started and *work is no handle. */
SENNIT_EXPORT sennit_status_t sennit_all_reduce_start(const void* send, void* recv, size_t count,
                                                      sennit_type_t type, sennit_op_t op,
                                                      sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_reduce_scatter_start(const void* send, void* recv,
                                                          size_t count, sennit_type_t type,
                                                          sennit_op_t op, sennit_comm_t comm,
                                                          sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_all_gather_start(const void* send, void* recv, size_t count,
                                                      sennit_type_t type, sennit_comm_t comm,
                                                      sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_broadcast_start(const void* send, void* recv, size_t count,
                                                     sennit_type_t type, int root,
                                                     sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_reduce_start(const void* send, void* recv, size_t count,
                                                  sennit_type_t type, sennit_op_t op, int root,
                                                  sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_gather_start(const void* send, void* recv, size_t count,
                                                  sennit_type_t type, int root, sennit_comm_t comm,
                                                  sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_scatter_start(const void* send, void* recv, size_t count,
                                                   sennit_type_t type, int root, sennit_comm_t comm,
                                                   sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_all_to_all_start(const void* send, void* recv, size_t count,
                                                      sennit_type_t type, sennit_comm_t comm,
                                                      sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_barrier_start(sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_send_start(const void* send, size_t count, sennit_type_t type,
                                                int peer, sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_recv_start(void* recv, size_t count, sennit_type_t type,
                                                int peer, sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_send_tagged_start(const void* send, size_t count,
                                                       sennit_type_t type, int peer, int tag,
                                                       sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_recv_tagged_start(void* recv, size_t count, sennit_type_t type,
                                                       int peer, int tag, sennit_comm_t comm,
                                                       sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_all_gather_v_start(const void* send, void* recv,
                                                        const size_t counts[],
                                                        const size_t displacements[],
                                                        sennit_type_t type, sennit_comm_t comm,
                                                        sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_reduce_scatter_v_start(const void* send, void* recv,
                                                            const size_t counts[],
                                                            sennit_type_t type, sennit_op_t op,
                                                            sennit_comm_t comm,
                                                            sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_gather_v_start(const void* send, void* recv,
                                                    const size_t counts[],
                                                    const size_t displacements[],
                                                    sennit_type_t type, int root,
                                                    sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_scatter_v_start(const void* send, void* recv,
                                                     const size_t counts[],
                                                     const size_t displacements[],
                                                     sennit_type_t type, int root,
                                                     sennit_comm_t comm, sennit_work_t* work);
SENNIT_EXPORT sennit_status_t sennit_all_to_all_v_start(
    const void* send, const size_t send_counts[], const size_t send_displacements[], void* recv,
    const size_t recv_counts[], const size_t recv_displacements[], sennit_type_t type,
    sennit_comm_t comm, sennit_work_t* work);

/* ---- work ---- */

/* SENNIT_OK when complete, SENNIT_IN_PROGRESS when not, else the error. Makes progress. */
SENNIT_EXPORT sennit_status_t sennit_work_test(sennit_work_t work);
/* Waits up to timeout_ms (negative: for ever). SENNIT_IN_PROGRESS: not complete by then. */
SENNIT_EXPORT sennit_status_t sennit_work_wait(sennit_work_t work, int64_t timeout_ms);
/* The caller's own time for this call is over, after `waited_ms` (0 or more). If the work has not
 * completed, its communicator fails on all its ranks with SENNIT_TIMED_OUT: the text, the same on
 * all, names the ranks that have not made the call; of a send or receive the peer and the tag.
 * Returns SENNIT_OK at once, and the work then ends with that error; one that has completed keeps
 * its result. Where something worse is found out (calls that differ, ranks that died), that is the
 * error. */
SENNIT_EXPORT sennit_status_t sennit_work_expire(sennit_work_t work, int64_t waited_ms);
/* Of a receive that has completed: the rank whose message came. SENNIT_IN_PROGRESS: it has not
 * completed. SENNIT_INVALID_ARGUMENT: `work` is no receive. */
SENNIT_EXPORT sennit_status_t sennit_work_source(sennit_work_t work, int* source);
/* Waits if it has not completed, then frees. Until the end of its group has returned only the
 * group's thread may free it: at once, and the end makes the call all the same. */
SENNIT_EXPORT sennit_status_t sennit_work_free(sennit_work_t work);

/* Between start and end, calls of this thread (also sends and receives, on any communicators) are
 * collected and started together by the end, which waits for all of them. Groups nest. Until the
 * end of the outermost one, a collected call's work cannot be tested or waited for
 * (SENNIT_INVALID_ARGUMENT); to free it is to give up its handle, the call is made nevertheless.
 * Where a call of the group was off, which it says itself, the end makes none of them and returns
 * that error again, as do their works: half a group would wait for ever. Not so where the call's
 * communicator has failed: all its ranks know that, and the group's other calls are made. */
SENNIT_EXPORT sennit_status_t sennit_group_start(void);
SENNIT_EXPORT sennit_status_t sennit_group_end(void);
/* In place of sennit_group_end: makes none of the calls, and says what they would take by the
 * planner, in nanoseconds: those of one communicator one after the other, communicators side by
 * side. Works of the group's calls end with SENNIT_UNSUPPORTED. SENNIT_INVALID_ARGUMENT: the group
 * is within another one. */
SENNIT_EXPORT sennit_status_t sennit_group_predict(uint64_t* nanoseconds);

/* ---- what and why ---- */

/* The calling thread's last error; never NULL, and cut after 4 KiB. The text lies in a buffer of
 * the thread's own: the pointer is good until the thread ends, the text until a call of the thread
 * fails again. */
SENNIT_EXPORT const char* sennit_last_error(void);
SENNIT_EXPORT const char* sennit_status_name(sennit_status_t s); /* "ok", "peer failed", ... */
SENNIT_EXPORT size_t sennit_type_bytes(sennit_type_t type);
SENNIT_EXPORT const char* sennit_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
