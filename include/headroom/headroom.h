/* Headroom's C interface: exact attention, forward and backward, whose memory grows with N, not N^2. C11.
 *
 * Order of calls: headroom_context_create once; then for a problem ask headroom_attention_workspace_bytes and
 * headroom_attention_saved_bytes, bring that much memory, and call forward and backward as often as you like.
 *
 * Memory: saved and workspace are the caller's, aligned to HEADROOM_ALIGNMENT; forward and backward bring none of their own.
 * `saved` must stay as forward left it until backward has read it. On the CPU a workspace is free again when the call returns;
 * on a GPU, when the stream has done the work. Every pointer in a tensor, saved and workspace is memory that the context's device
 * reads: on a GPU device memory of that GPU (or managed or pinned memory). Others are refused where the driver can tell.
 * headroom_memory_allocate gives memory of the right kind for either.
 * Errors: every call returns a status; headroom_last_error() has the sentence for this thread's last failure.
 * Threads: any thread may call anything at any time, also with one context: its calls then take turns on the pool.
 * Processes: after a fork the child may go on using a CPU context; the pool starts again. A CUDA context is refused there, because
 * CUDA does not survive a fork.
 * Growth: structs begin with their size as the caller knew it. Start them from the *_INIT values: a field added later
 * is then zero, which always means what it meant before the field was there.
 */
#ifndef HEADROOM_H
#define HEADROOM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HEADROOM_API __attribute__((visibility("default")))
#else
#define HEADROOM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HEADROOM_VERSION_MAJOR 0
#define HEADROOM_VERSION_MINOR 1
#define HEADROOM_VERSION_PATCH 0
#define HEADROOM_ALIGNMENT 256

typedef enum headroom_status {
  HEADROOM_OK = 0,
  HEADROOM_BAD_ARGUMENT = 1,
  HEADROOM_UNSUPPORTED = 2,
  HEADROOM_OUT_OF_MEMORY = 3,
  HEADROOM_CUDA_ERROR = 4,
  HEADROOM_NCCL_ERROR = 5,
  HEADROOM_IO_ERROR = 6,
  HEADROOM_INTERRUPTED = 7,
  HEADROOM_BUG = 100 /* please report what headroom_last_error() says */
} headroom_status;

HEADROOM_API const char* headroom_version(void);                /* the loaded library's version: "0.1.0" */
HEADROOM_API const char* headroom_status_name(headroom_status); /* "ok", "bad_argument", ... */
HEADROOM_API const char* headroom_last_error(void);             /* this thread's last failure in words; "" before the first */

/* How a long call is ended. `stop` is asked in the thread that made the call, at most every 100 ms: between two pieces of work on the CPU, and while
 * ranks wait for each other. If it answers anything but 0, that call returns HEADROOM_INTERRUPTED, and what it writes is not whole. `stop` may make
 * no call that computes. There is one for the process; NULL, as at first: nothing is asked. */
HEADROOM_API void headroom_stop_when(int (*stop)(void* user), void* user);

/* ---- where the work is done ---- */

typedef enum headroom_device { HEADROOM_DEVICE_CPU = 0, HEADROOM_DEVICE_CUDA = 1 } headroom_device;

typedef struct headroom_context_settings {
  uint32_t struct_size;
  int32_t device;       /* a headroom_device */
  int32_t device_index; /* cuda:device_index */
  int32_t threads;      /* on the CPU; 0: every core this process may use */
} headroom_context_settings;
#define HEADROOM_CONTEXT_SETTINGS_INIT \
  { sizeof(headroom_context_settings), HEADROOM_DEVICE_CPU, 0, 0 }

typedef struct headroom_context headroom_context;

HEADROOM_API headroom_status headroom_context_create(const headroom_context_settings* settings, headroom_context** out);
HEADROOM_API void headroom_context_destroy(headroom_context* context); /* NULL is allowed; no call may be running */
HEADROOM_API int headroom_context_threads(const headroom_context* context);

/* ---- memory of a context's device ---- */

typedef struct headroom_memory { /* used by one call (workspace), or from forward to backward (saved) */
  void* data;
  size_t bytes;
} headroom_memory;

/* Memory that the context's device reads: the host's, or the GPU's. Aligned to HEADROOM_ALIGNMENT; not cleared. 0 bytes give NULL. */
HEADROOM_API headroom_status headroom_memory_allocate(headroom_context* context, size_t bytes, headroom_memory* out);
HEADROOM_API void headroom_memory_free(headroom_context* context, headroom_memory* memory); /* becomes {NULL, 0} */
/* Between the host's memory and the context's device, after what `stream` (a cudaStream_t; NULL: the default one) was given before.
 * Both return when the bytes have arrived. */
HEADROOM_API headroom_status headroom_memory_write(headroom_context* context, void* to, const void* from_host, size_t bytes, void* stream);
HEADROOM_API headroom_status headroom_memory_read(headroom_context* context, void* to_host, const void* from, size_t bytes, void* stream);

/* ---- tensors ---- */

typedef enum headroom_dtype { HEADROOM_F32 = 0, HEADROOM_BF16 = 1, HEADROOM_F16 = 2, HEADROOM_I32 = 3 } headroom_dtype;

typedef struct headroom_tensor { /* a view: it owns nothing */
  void* data;
  int32_t dtype; /* a headroom_dtype */
  int32_t rank;  /* 0: no tensor */
  int64_t shape[4];
  int64_t
      stride[4]; /* in elements, always given, at least 0. On the CPU a stride of 0 repeats one batch or head; other zeros are refused */
  int64_t bytes; /* readable bytes from `data` on; a view that reaches further is refused. 0: not known, not checked */
} headroom_tensor;

/* The last dimension fastest, without gaps; `bytes` is what that takes. rank 1 to 4; a rank or size outside gives no tensor. */
static inline headroom_tensor headroom_contiguous(void* data, headroom_dtype dtype, int32_t rank, const int64_t* shape) {
  headroom_tensor t = {0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}, 0};
  int64_t step = 1;
  int32_t i;
  if (rank < 1 || rank > 4) return t;
  for (i = rank; i-- > 0; step *= shape[i] > 0 ? shape[i] : 1) {
    if (shape[i] > 0 && step > INT64_MAX / 4 / shape[i]) return t;
    t.shape[i] = shape[i];
    t.stride[i] = step;
  }
  t.data = data;
  t.dtype = (int32_t)dtype;
  t.rank = rank;
  t.bytes = step * (dtype == HEADROOM_F32 || dtype == HEADROOM_I32 ? 4 : 2);
  return t;
}

/* ---- attention: O = softmax(scale * Q K^T + mask) V, and its gradients ----
 *
 * Q, O, dO, dQ are [batch, len_q, heads, head_dim]; K, V, dK, dV [batch, len_k, kv_heads, head_dim]; V, O, dV, dO have head_dim_v
 * where it is given; any strides, but the last dimension's is 1. Outputs overlap neither each other nor the inputs. LSE and dLSE
 * are fp32 [batch, heads, len_q], contiguous: the natural logarithm of the softmax's sum. A row whose keys are all masked gives
 * O = 0, LSE = -infinity and zero gradients.
 *
 * A problem may also have these; their small tensors are contiguous:
 *   sink        a logit per head joins the softmax's sum, and LSE, and has no value. Its gradient is dsink.
 *   documents   each row of the batch holds sequences one behind another. Document d of row b has the queries cu_q[b][d] ...
 *               cu_q[b][d + 1] - 1 and the keys cu_k[b][d] ... cu_k[b][d + 1] - 1. The mask holds inside it; no row sees another document's.
 *               Any may be empty. Positions behind the last one belong to none and see nothing.
 *   a cache     that is longer than what it holds is one document in each row: cu_q {0, len_q}, cu_k {0, keys that there are}.
 *   dropout     a probability is dropped with this chance, and the others grow so that the mean stays. Which ones is a function of seed, offset,
 *               batch, head, row and key alone (by Philox 2x32-7): the same on every device. Backward is given forward's seed and offset.
 *   alibi       a score falls by slope * |position - key|. Each head has a slope, which may differ by row of the batch, or by document. A row's
 *               position is the key that it is at, counted inside its document: the last row is at the last key, or with HEADROOM_TOP_LEFT row i
 *               is at key i; `align` says so without a mask too. The slopes have no gradient.
 *   pages       K and V are [pages, page, kv_heads, head_dim]; pages[b][n] is the one that has keys n * page ... of row b. Forward only.
 *   quantise    HEADROOM_QUANTISE_FP8: the call rounds Q, K and V to 8 bits (E4M3), with a scale for each head of each row of the batch, and
 *               multiplies those. Every tensor is bf16. Forward only: the error is that of 8 bits. The workspace has the copies. Hopper has
 *               kernels for it (head dims that are multiples of 16, up to 256); a CPU emulates them, slowly and in memory of its own.
 * On the CPU wrong lists, and slopes that are not finite, are refused. On a GPU they are not checked: kernels stay inside the tensors, and the
 * result is undefined. */

typedef enum headroom_mask { HEADROOM_MASK_FULL = 0, HEADROOM_MASK_CAUSAL = 1, HEADROOM_MASK_WINDOW = 2 } headroom_mask;
typedef enum headroom_align { HEADROOM_BOTTOM_RIGHT = 0, HEADROOM_TOP_LEFT = 1 } headroom_align;
typedef enum headroom_pass { HEADROOM_FORWARD = 0, HEADROOM_BACKWARD = 1 } headroom_pass;
typedef enum headroom_math { HEADROOM_MATH_EXACT = 0, HEADROOM_MATH_TF32 = 1 } headroom_math;
typedef enum headroom_quantise { HEADROOM_QUANTISE_NOTHING = 0, HEADROOM_QUANTISE_FP8 = 1 } headroom_quantise;

typedef struct headroom_attention_problem {
  uint32_t struct_size;
  int32_t dtype; /* storage of Q, K, V, O and their gradients; sums are fp32 */
  int64_t batch, heads;
  int64_t kv_heads; /* 0: as heads; else it divides heads */
  int64_t len_q, len_k, head_dim;
  int32_t mask;          /* a headroom_mask */
  int32_t align;         /* a headroom_align: the last row sees the last key, or row i sees keys 0 ... i */
  int64_t window;        /* HEADROOM_MASK_WINDOW: a row sees its own position and the window - 1 before it */
  float scale;           /* 0: 1 / sqrt(head_dim), unless scale_given */
  int32_t deterministic; /* 1: the same bits on every run, or HEADROOM_UNSUPPORTED */
  const char* variant;   /* NULL: the best that supports the problem; else a name or family from headroom_attention_explain */
  int32_t scale_given;   /* 1: use `scale` as it is, even 0 */
  int32_t math;          /* a headroom_math: how a GPU multiplies fp32 */
  int64_t window_after;  /* HEADROOM_MASK_WINDOW: a row also sees this many positions after its own */
  int64_t head_dim_v;    /* dimension of V, O, dV and dO; 0: head_dim */
  float softcap;         /* scores become softcap * tanh(score / softcap); 0: unchanged */
  int32_t sink;          /* 1: there is a sink */
  int64_t documents;     /* packed documents in each row of the batch; 0: not packed */
  int64_t page, pages;   /* positions in a page, and the number of pages; 0: K and V are not paged */
  float dropout;         /* the chance that a probability is dropped: at least 0, below 1, in steps of 1/65536 */
  int32_t unused;        /* not read */
  int32_t quantise;      /* a headroom_quantise: what the call makes of Q, K and V before it multiplies them */
  int32_t unused_too;    /* not read: a caller older than the next field has padding here */
  int32_t alibi;         /* 1: there are slopes */
  int32_t reserved;      /* 0 */
} headroom_attention_problem;
#define HEADROOM_ATTENTION_PROBLEM_INIT \
  { sizeof(headroom_attention_problem), HEADROOM_F32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bits of `flags`. HEADROOM_TRUST_POINTERS: the caller knows on which device its pointers are; the driver is not asked. */
enum { HEADROOM_TRUST_POINTERS = 1 };

typedef struct headroom_attention_forward_arguments {
  uint32_t struct_size;
  uint32_t flags;
  headroom_tensor q, k, v;
  headroom_tensor o, lse; /* written */
  headroom_memory saved;  /* written; backward reads it */
  headroom_memory workspace;
  void* stream;               /* a cudaStream_t; NULL on the CPU */
  headroom_tensor sink;       /* fp32 [heads]; this tensor and those below have rank 0 where the problem has none */
  headroom_tensor cu_q, cu_k; /* int32 [batch, documents + 1] */
  headroom_tensor pages;      /* int32 [batch, len_k / page, rounded up] */
  headroom_tensor random;     /* int32 [4], optional: seed and offset, low halves first, which the device reads when the call runs */
  uint64_t seed, offset;      /* seed and offset of the dropout, if there is no `random` */
  headroom_tensor alibi;      /* slopes: fp32 [heads], [batch, heads], or [batch, documents, heads] */
} headroom_attention_forward_arguments;

typedef struct headroom_attention_backward_arguments {
  uint32_t struct_size;
  uint32_t flags;
  headroom_tensor q, k, v, o, lse, d_o;
  headroom_tensor dlse;       /* optional: rank 0 when there is none */
  headroom_tensor dq, dk, dv; /* overwritten */
  headroom_memory saved;      /* what forward wrote */
  headroom_memory workspace;
  void* stream;
  headroom_tensor sink, cu_q, cu_k; /* the same as in forward */
  headroom_tensor dsink;            /* fp32 [heads], overwritten; optional: rank 0 if it is not needed */
  headroom_tensor random;           /* this and those below: the same as in forward */
  uint64_t seed, offset;
  headroom_tensor alibi;
} headroom_attention_backward_arguments;

/* Exact: one byte less is refused with HEADROOM_OUT_OF_MEMORY, and the error names what could not be placed. */
HEADROOM_API headroom_status headroom_attention_workspace_bytes(headroom_context* context, const headroom_attention_problem* problem,
                                                                headroom_pass pass, size_t* bytes);
/* Beside Q, K, V, O and LSE, which the caller keeps anyway. Nothing for flash; softmax's whole result for plain. */
HEADROOM_API headroom_status headroom_attention_saved_bytes(headroom_context* context, const headroom_attention_problem* problem,
                                                            size_t* bytes);
HEADROOM_API headroom_status headroom_attention_forward(headroom_context* context, const headroom_attention_problem* problem,
                                                        const headroom_attention_forward_arguments* arguments);
HEADROOM_API headroom_status headroom_attention_backward(headroom_context* context, const headroom_attention_problem* problem,
                                                         const headroom_attention_backward_arguments* arguments);

/* ---- the same calls, checked once: for callers who pass tensors of the same shapes again and again ----
 *
 * A call is made from the arguments, in which no pointer is looked at. Running it takes the pointers alone: `pointers` has what `data` is
 * in the arguments, one for each headroom_tensor and headroom_memory, in their order there; a tensor that is not there, and memory of
 * 0 bytes, have NULL. Those past `count` are NULL. The context outlives the call. Any number of threads may run one at once, each
 * with memory of its own. */
typedef struct headroom_attention_call headroom_attention_call;

HEADROOM_API headroom_status headroom_attention_forward_call_create(headroom_context* context, const headroom_attention_problem* problem,
                                                                    const headroom_attention_forward_arguments* arguments,
                                                                    headroom_attention_call** out);
HEADROOM_API headroom_status headroom_attention_backward_call_create(headroom_context* context, const headroom_attention_problem* problem,
                                                                     const headroom_attention_backward_arguments* arguments,
                                                                     headroom_attention_call** out);
HEADROOM_API headroom_status headroom_attention_call_run(const headroom_attention_call* call, void* const* pointers, int32_t count,
                                                         void* stream);
HEADROOM_API void headroom_attention_call_destroy(headroom_attention_call* call); /* NULL is allowed; no run may be running */

/* For the package gpu_headroom alone, which may change them: headroom_stop_when() for Python's signals, 0 where this process has no Python; and the
 * exception of a handler that ended a call becomes Python's own, with Python's lock held. */
HEADROOM_API int headroom_python_heeds_signals(void);
HEADROOM_API void headroom_python_raise(void);

/* For the package gpu_headroom alone, which may change it: a new tuple of Python functions that make calls of attention whose shapes and strides
 * it settled. Call it with Python's lock held. NULL, with no error in Python or one, where this process has no Python that can do it. */
HEADROOM_API void* headroom_python_attention(void);

/* One line per variant, best first: "flash: chosen", "plain: serves too", "other: why it cannot". Writes at most `capacity`
 * bytes, the closing zero included; *needed (when not NULL) is what the whole text takes. Fine also when none serves. */
HEADROOM_API headroom_status headroom_attention_explain(headroom_context* context, const headroom_attention_problem* problem, char* text,
                                                        size_t capacity, size_t* needed);

/* ---- forecasts of a training step: nothing is allocated for it, no GPU is needed ----
 *
 * `request` is a JSON object in UTF-8; *answer becomes one, which headroom_text_free gives back. Both have "version": 1. A key that is
 * not known is refused. Keys of every request: model (a preset's name, a file, or an object: ours or a Hugging Face config), batch, len,
 * device ("h200", a file, "cpu", "cuda:0"; left out: this machine), memory_bytes. Levers of a step have the names and words of the options
 * of `headroom step`: precision (fp32, tf32, bf16, fp16, fp8; left out: bf16 on a GPU, fp32 on a CPU), scales, attention, keep, logits,
 * masters, gradients, update, moments, copies. The forecast takes one value of each, the plan a value or a list to choose from. The
 * forecast's also: ranks, shard, split_tokens, micro_batches, documents (lengths, in place of len), timeline (0: left out); the plan's: gpus, most;
 * PyTorch's: precision, attention, keep, ranks, shard, softmax, adam, workspace_bytes, and lists of batch, len and precision.
 * docs/python.md has the answers' keys. */
HEADROOM_API headroom_status headroom_forecast(const char* request, char** answer);
HEADROOM_API headroom_status headroom_plan(const char* request, char** answer);
HEADROOM_API headroom_status headroom_memory_as_pytorch(const char* request, char** answer);
HEADROOM_API void headroom_text_free(char* text);

/* ---- ranks: processes that another launcher started, and their collectives on memory of the host or of a GPU each ----
 *
 * Every rank makes the same calls in the same order, with as many elements of the same type. Before anything moves, a call compares what the
 * ranks ask for; where they differ, the call fails on every rank, with the same sentence, and the ranks may go on. Any other failure ends
 * them all: a rank that dies, leaves or is refused makes the others' calls fail within ten seconds, with its sentence. Sums are FP32, in the
 * order of ranks, and rounded once: the same bits for any backend, and those of one process that adds as many micro-batches in order.
 * A call on host memory returns when it is done; one on a GPU's when the ranks have agreed and it is queued (headroom_comm_on_stream).
 * One thread at a time calls; two at once are refused on every rank. */
typedef struct headroom_comm headroom_comm;

typedef struct headroom_comm_settings {
  uint32_t struct_size;
  int32_t rank;           /* -1: the launcher's (torchrun, Open MPI, PMI, SLURM); without a launcher this is the only rank */
  int32_t ranks;          /* 0: the launcher's number */
  int32_t patience_ms;    /* longest wait for a live rank that does not make the call; 0: ten minutes */
  const char* rendezvous; /* "host:port", free on rank 0's machine, or "local:name" on one machine; NULL: the launcher's */
} headroom_comm_settings;
#define HEADROOM_COMM_SETTINGS_INIT \
  { sizeof(headroom_comm_settings), -1, 0, 0, NULL }

typedef enum headroom_reduction { HEADROOM_SUM = 0, HEADROOM_MEAN = 1 } headroom_reduction;

HEADROOM_API headroom_status headroom_comm_create(const headroom_comm_settings* settings,
                                                  headroom_comm** out); /* returns when all ranks have joined */
/* Waits until the other ranks leave too, at most patience_ms. NULL is allowed. */
HEADROOM_API void headroom_comm_destroy(headroom_comm* comm);
HEADROOM_API void headroom_comm_end(headroom_comm* comm,
                                    const char* why); /* reports that this rank failed: the others' calls return `why` */
HEADROOM_API int headroom_comm_rank(const headroom_comm* comm);
HEADROOM_API int headroom_comm_ranks(const headroom_comm* comm);

/* Joins the ranks' GPUs, for calls on their memory. Every rank calls it; once is enough. Where it is HEADROOM_UNSUPPORTED or a
 * HEADROOM_NCCL_ERROR, it is so on every rank, with the same words, and they may go on. `staging_bytes` of the GPU's memory are taken until
 * headroom_comm_destroy. */
typedef enum headroom_comm_route {
  HEADROOM_ROUTE_AUTO = 0, /* copies from GPU to GPU on one machine, where GPUs see each other; else NCCL */
  HEADROOM_ROUTE_NCCL = 1
} headroom_comm_route;
typedef struct headroom_comm_gpu {
  uint32_t struct_size;
  int32_t device;        /* cuda:device; ranks may share one where its memory can be shared */
  int32_t route;         /* a headroom_comm_route */
  int64_t staging_bytes; /* 0: 512 MiB */
} headroom_comm_gpu;
#define HEADROOM_COMM_GPU_INIT \
  { sizeof(headroom_comm_gpu), 0, 0, 0 }
HEADROOM_API headroom_status headroom_comm_join_gpu(headroom_comm* comm, const headroom_comm_gpu* gpu);
/* The next call's memory is the joined GPU's. It runs after what `stream` (a cudaStream_t; NULL: the default one) was given before, and later
 * work of the stream runs after it. A stream that is being captured is refused. */
HEADROOM_API headroom_status headroom_comm_on_stream(headroom_comm* comm, void* stream);
/* The same, but the call returns at once: a thread of the communicator makes it, after those that were begun before, and later work of the stream
 * runs beside it, until headroom_comm_wait makes a stream wait for the *ticket that it gets. Leave its memory alone until then. To wait takes
 * until the other ranks' hosts have come to the call. Any thread may wait, and ask whether a call is done; both fail with what the call failed with,
 * and with the reason where a rank has ended. */
HEADROOM_API headroom_status headroom_comm_later(headroom_comm* comm, void* stream, int64_t* ticket);
HEADROOM_API headroom_status headroom_comm_wait(headroom_comm* comm, int64_t ticket, void* stream);
HEADROOM_API headroom_status headroom_comm_done(headroom_comm* comm, int64_t ticket, int32_t* done);
/* How bytes go between the joined GPUs ("copies from GPU to GPU"); "" where none are joined. Valid until headroom_comm_destroy. */
HEADROOM_API const char* headroom_comm_gpu_route(const headroom_comm* comm);
/* Names what the next call carries ("layer 3's weight"). Ranks compare it like the rest. The last 47 bytes count. */
HEADROOM_API headroom_status headroom_comm_carries(headroom_comm* comm, const char* what);
HEADROOM_API headroom_status headroom_comm_barrier(headroom_comm* comm);
HEADROOM_API headroom_status headroom_comm_broadcast(headroom_comm* comm, void* data, int64_t count, headroom_dtype dtype, int32_t root);
/* In place. Sums of i32 are refused. */
HEADROOM_API headroom_status headroom_comm_all_reduce(headroom_comm* comm, void* data, int64_t count, headroom_dtype dtype,
                                                      headroom_reduction reduction);
/* `whole` has ranks * count elements, part r came from rank r; `part` may be its own place in `whole`. */
HEADROOM_API headroom_status headroom_comm_all_gather(headroom_comm* comm, const void* part, void* whole, int64_t count,
                                                      headroom_dtype dtype);
/* `whole` has ranks * count elements; `part`, apart from it, becomes the sum over all ranks of their part for this rank. */
HEADROOM_API headroom_status headroom_comm_reduce_scatter(headroom_comm* comm, const void* whole, void* part, int64_t count,
                                                          headroom_dtype dtype, headroom_reduction reduction);
/* Both have ranks * count elements: part r of `mine` goes to rank r, part r of `theirs` came from it. */
HEADROOM_API headroom_status headroom_comm_exchange(headroom_comm* comm, const void* mine, void* theirs, int64_t count,
                                                    headroom_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
