/* y = x weight^T. Rows of weights are the tasks; all rows of x pass them (codes.h takes both in blocks). */
#include "internal.h"

/* Row kernels take 16 rows of weights together. */
#define FEWEST_ROWS 16
/* With more rows of x than pass together, weights are read again for each 32 of them, so a task's must stay
 * in the caches: 32 rows of 4,096 4-bit weights are 80 KiB. */
#define MOST_ROWS 32
#define FEW_X 32

typedef struct {
    int64_t first, stop;
} row_range;

/* The task after `before`. With few rows of x the time goes into reading weights, and memory is fast in
 * long runs only: tasks are long at first and short at the end, so that all threads end together. */
static row_range next_range(const strata_matmul *op, int32_t n_threads, row_range before) {
    const int64_t left = op->n_out - before.stop;
    int64_t n = op->n_rows <= FEW_X ? left * 3 / (4 * n_threads) / FEWEST_ROWS * FEWEST_ROWS : MOST_ROWS;
    if (n < FEWEST_ROWS) n = FEWEST_ROWS;
    return (row_range){before.stop, before.stop + (n < left ? n : left)};
}

static void add_bias(const strata_matmul *op, int64_t first, int64_t stop) {
    for (int64_t i = 0; i < op->n_rows; i++)
        for (int64_t r = first; r < stop; r++) op->y[i * op->n_out + r] += op->bias[r];
}

/* Unpacks a row of weights once for all rows of x. */
static void multiply_unpacked(const strata_worker *worker, int32_t quant, const strata_dots *dots, float *scratch) {
    strata_dots one = *dots;
    one.w = (const uint8_t *)scratch;
    one.n_w = 1;
    for (int64_t r = 0; r < dots->n_w; r++) {
        worker->kernels->dequantize[quant](dots->w + r * dots->row_bytes, scratch, dots->n_cols);
        one.y = dots->y + r;
        worker->kernels->dot_floats[STRATA_F32](&one);
    }
}

void strata_multiply(const strata_worker *worker, int32_t quant, const strata_dots *dots, float *scratch) {
    const strata_dot dot_codes = dots->qs ? worker->kernels->dot_codes[quant] : 0;
    const strata_dot dot = dot_codes ? dot_codes : worker->kernels->dot_floats[quant];
    if (dot)
        dot(dots);
    else
        multiply_unpacked(worker, quant, dots, scratch);
}

int64_t strata_tasks_matmul(const strata_matmul *op, int32_t n_threads) {
    int64_t n_tasks = 0;
    for (row_range at = {0, 0}; at.stop < op->n_out; n_tasks++) at = next_range(op, n_threads, at);
    return n_tasks;
}

void strata_do_matmul(const strata_worker *worker, const strata_matmul *op, int64_t task) {
    const int64_t n_cols = op->n_cols, n_out = op->n_out;
    row_range rows = next_range(op, worker->n_threads, (row_range){0, 0});
    while (task--) rows = next_range(op, worker->n_threads, rows);
    const int64_t first = rows.first, stop = rows.stop;
    const strata_dots dots = {
        .w = (const uint8_t *)op->weight + first * op->row_bytes,
        .n_w = stop - first,
        .row_bytes = op->row_bytes,
        .n_cols = n_cols,
        .n_x = op->n_rows,
        .x = op->x,
        .qs = op->qs,
        .ds = op->ds,
        .y = op->y + first,
        .y_stride = n_out,
    };
    strata_multiply(worker, op->quant, &dots, op->scratch + worker->thread * n_cols);
    if (op->bias) add_bias(op, first, stop);
}
