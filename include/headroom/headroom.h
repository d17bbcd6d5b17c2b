/* Headroom's one binary door: exact attention, forward and backward, whose memory grows with N, not N^2. C11.
 *
 * Order of calls: headroom_context_create once; then for a problem ask headroom_attention_workspace_bytes and
 * headroom_attention_saved_bytes, bring that much memory, and call forward and backward as often as you like.
 *
 * Memory: saved and workspace are the caller's, aligned to HEADROOM_ALIGNMENT; forward and backward bring none of their own.
 * `saved` must stay as forward left it until backward has read it; a workspace is free again when the call returns.
 * Errors: every call returns a status; headroom_last_error() has the sentence for this thread's last failure.
 * Threads: any thread may call anything at any time, also with one context: its calls then take turns on the pool.
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

HEADROOM_API const char* headroom_version(void);                /* "0.1.0", of the library that was loaded */
HEADROOM_API const char* headroom_status_name(headroom_status); /* "ok", "bad_argument", ... */
HEADROOM_API const char* headroom_last_error(void);             /* this thread's; "" before its first failure */

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
HEADROOM_API void headroom_context_destroy(headroom_context* context); /* NULL is fine; no call may be under way */
HEADROOM_API int headroom_context_threads(const headroom_context* context);

/* ---- tensors ---- */

typedef enum headroom_dtype { HEADROOM_F32 = 0, HEADROOM_BF16 = 1, HEADROOM_F16 = 2 } headroom_dtype;

typedef struct headroom_tensor { /* a view: it owns nothing */
  void* data;
  int32_t dtype; /* a headroom_dtype */
  int32_t rank;  /* 0: no tensor */
  int64_t shape[4];
  int64_t stride[4]; /* in elements; all zero: contiguous, the last dimension fastest */
} headroom_tensor;

/* ---- attention: O = softmax(scale * Q K^T + mask) V, and its gradients ----
 *
 * Q, O, dO, dQ are [batch, len_q, heads, head_dim]; K, V, dK, dV [batch, len_k, kv_heads, head_dim]; any strides, but the last
 * dimension's is 1. LSE and dLSE are fp32 [batch, heads, len_q], contiguous: the natural logarithm of the softmax's sum.
 * A row whose keys are all masked gives O = 0, LSE = -infinity and zero gradients. */

typedef enum headroom_mask { HEADROOM_MASK_FULL = 0, HEADROOM_MASK_CAUSAL = 1, HEADROOM_MASK_WINDOW = 2 } headroom_mask;
typedef enum headroom_align { HEADROOM_BOTTOM_RIGHT = 0, HEADROOM_TOP_LEFT = 1 } headroom_align;
typedef enum headroom_pass { HEADROOM_FORWARD = 0, HEADROOM_BACKWARD = 1 } headroom_pass;

typedef struct headroom_attention_problem {
  uint32_t struct_size;
  int32_t dtype; /* of Q, K, V, O and their gradients; sums are fp32 */
  int64_t batch, heads;
  int64_t kv_heads; /* 0: as heads; else it divides heads */
  int64_t len_q, len_k, head_dim;
  int32_t mask;          /* a headroom_mask */
  int32_t align;         /* a headroom_align: the last row sees the last key, or row i sees keys 0 ... i */
  int64_t window;        /* of HEADROOM_MASK_WINDOW: a row sees its own position and the window - 1 before it */
  float scale;           /* 0: 1 / sqrt(head_dim) */
  int32_t deterministic; /* 1: the same bits on every run, or HEADROOM_UNSUPPORTED */
  const char* variant;   /* NULL: the best that serves; else a name or family, as headroom_attention_explain lists them */
} headroom_attention_problem;
#define HEADROOM_ATTENTION_PROBLEM_INIT \
  { sizeof(headroom_attention_problem), HEADROOM_F32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }

typedef struct headroom_memory { /* lent for one call (workspace) or from forward to backward (saved) */
  void* data;
  size_t bytes;
} headroom_memory;

typedef struct headroom_attention_forward_arguments {
  uint32_t struct_size;
  uint32_t reserved;
  headroom_tensor q, k, v;
  headroom_tensor o, lse; /* written */
  headroom_memory saved;  /* written; for backward */
  headroom_memory workspace;
  void* stream; /* a cudaStream_t; NULL on the CPU */
} headroom_attention_forward_arguments;

typedef struct headroom_attention_backward_arguments {
  uint32_t struct_size;
  uint32_t reserved;
  headroom_tensor q, k, v, o, lse, d_o;
  headroom_tensor dlse;       /* optional: rank 0 when there is none */
  headroom_tensor dq, dk, dv; /* overwritten */
  headroom_memory saved;      /* as forward left it */
  headroom_memory workspace;
  void* stream;
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

/* One line per variant, best first: "flash: chosen", "plain: serves too", "other: why it cannot". Writes at most `capacity`
 * bytes, the closing zero included; *needed (when not NULL) is what the whole text takes. Fine also when none serves. */
HEADROOM_API headroom_status headroom_attention_explain(headroom_context* context, const headroom_attention_problem* problem, char* text,
                                                        size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif
#endif
