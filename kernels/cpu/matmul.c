/* y = x weight^T. Weight rows are the tasks; a task's rows stay in the nearest cache while activation
 * rows pass, four at a time, so that a weight is unpacked once for four of them. */
#include "internal.h"

/* Weight rows a task has at most: 32 rows of 4,096 4-bit weights are 80 KiB. */
#define MOST_ROWS 32
#define FEWEST_ROWS 4
#define TASKS_PER_THREAD 8
/* Activation rows that pass the rows of a task at once; row kernels take as many together. */
#define X_ROWS 4

static int64_t rows_per_task(int64_t n_out, int32_t n_threads) {
    const int64_t rows = n_out / ((int64_t)n_threads * TASKS_PER_THREAD);
    return rows > MOST_ROWS ? MOST_ROWS : rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
}

static void add_bias(const strata_matmul *op, int64_t first, int64_t stop) {
    for (int64_t i = 0; i < op->n_rows; i++)
        for (int64_t r = first; r < stop; r++) op->y[i * op->n_out + r] += op->bias[r];
}

int64_t strata_tasks_matmul(const strata_matmul *op, int32_t n_threads) {
    const int64_t per_task = rows_per_task(op->n_out, n_threads);
    return (op->n_out + per_task - 1) / per_task;
}

void strata_do_matmul(const strata_worker *worker, const strata_matmul *op, int64_t task) {
    const strata_dot dot_codes = op->qs ? worker->kernels->dot_codes[op->quant] : 0;
    const strata_dot dot = dot_codes ? dot_codes : worker->kernels->dot_floats[op->quant];
    const int64_t n_cols = op->n_cols, n_out = op->n_out, per_task = rows_per_task(n_out, worker->n_threads);
    const int64_t first = task * per_task, stop = first + per_task < n_out ? first + per_task : n_out;
    strata_dots dots = {
        .w = (const uint8_t *)op->weight + first * op->row_bytes,
        .n_w = stop - first,
        .row_bytes = op->row_bytes,
        .n_cols = n_cols,
        .y_stride = n_out,
    };
    if (!dot) { /* no product of this format: unpack a row once for all rows of x */
        float *unpacked = op->scratch + worker->thread * n_cols;
        const strata_dequantize_row dequantize = strata_dequantizer(op->quant);
        const uint8_t *w = dots.w;
        dots.w = (const uint8_t *)unpacked;
        dots.n_w = 1;
        dots.n_x = op->n_rows;
        dots.x = op->x;
        for (int64_t r = first; r < stop; r++, w += op->row_bytes) {
            dequantize(w, unpacked, n_cols);
            dots.y = op->y + r;
            worker->kernels->dot_floats[STRATA_F32](&dots);
        }
    } else {
        for (int64_t i = 0; i < op->n_rows; i += X_ROWS) {
            dots.n_x = op->n_rows - i < X_ROWS ? op->n_rows - i : X_ROWS;
            dots.x = op->x + i * n_cols;
            dots.qs = op->qs + i * 2 * n_cols;
            dots.ds = op->ds + i * (n_cols / 16);
            dots.y = op->y + i * n_out + first;
            dot(&dots);
        }
    }
    if (op->bias) add_bias(op, first, stop);
}
