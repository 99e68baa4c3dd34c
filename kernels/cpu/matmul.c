/* y = x weight^T. Rows of weights are the tasks; all rows of x pass them (codes.h takes both in blocks). */
#include "internal.h"

/* Weight rows a task has at most: 32 rows of 4,096 4-bit weights are 80 KiB. Row kernels take 16 together. */
#define MOST_ROWS 32
#define FEWEST_ROWS 4
#define TASKS_PER_THREAD 8

static int64_t rows_per_task(int64_t n_out, int32_t n_threads) {
    const int64_t rows = n_out / ((int64_t)n_threads * TASKS_PER_THREAD);
    return rows > MOST_ROWS ? MOST_ROWS : rows >= 16 ? 16 : rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
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
    const int64_t per_task = rows_per_task(op->n_out, n_threads);
    return (op->n_out + per_task - 1) / per_task;
}

void strata_do_matmul(const strata_worker *worker, const strata_matmul *op, int64_t task) {
    const int64_t n_cols = op->n_cols, n_out = op->n_out, per_task = rows_per_task(n_out, worker->n_threads);
    const int64_t first = task * per_task, stop = first + per_task < n_out ? first + per_task : n_out;
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
