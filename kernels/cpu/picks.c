/* Mixture of experts: which experts a row goes to, and products with the weights of its experts.
 *
 * Picks are sorted by expert, so that a weight row is unpacked once for all rows that picked its
 * expert. Which rows share an expert changes no bit of a product.
 */
#include <string.h>

#include "layers_internal.h"

/* Weights of a task stay in the caches while rows of x pass them, but are read from memory in long runs. */
#define MOST_BYTES 262144
#define FEWEST_ROWS 16
#define TASKS_PER_THREAD 4
/* Columns of a task of the sum. */
#define SUM_COLUMNS 512

int64_t strata_tasks_route(const strata_route *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows, n_threads);
}

/* Inserts an expert into the list of the best so far; an equal one that came before stays ahead. */
static void insert_best(const float *logits, int32_t *best, int32_t n_best, int32_t n_most, int32_t expert) {
    int32_t at = n_best;
    while (at > 0 && logits[expert] > logits[best[at - 1]]) at--;
    if (at == n_most) return;
    const int32_t n_moved = (n_best < n_most ? n_best : n_most - 1) - at;
    memmove(best + at + 1, best + at, (size_t)n_moved * sizeof *best);
    best[at] = expert;
}

void strata_do_route(const strata_worker *worker, const strata_route *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        const float *logits = op->logits + i * op->n_experts;
        int32_t *best = op->experts + i * op->n_used;
        float *shares = op->shares + i * op->n_used, sum = 0;
        for (int32_t e = 0; e < op->n_experts; e++)
            insert_best(logits, best, e < op->n_used ? e : op->n_used, op->n_used, e);
        for (int32_t j = 0; j < op->n_used; j++) {
            shares[j] = __builtin_expf(logits[best[j]] - logits[best[0]]);
            sum += shares[j];
        }
        for (int32_t j = 0; j < op->n_used; j++) shares[j] /= sum;
    }
}

int64_t strata_tasks_group_picks(const strata_group_picks *op, int32_t n_threads) {
    (void)op, (void)n_threads;
    return 1;
}

void strata_do_group_picks(const strata_worker *worker, const strata_group_picks *op, int64_t task) {
    (void)worker, (void)task;
    const int64_t n_picks = op->n_rows * op->n_used;
    int32_t *next = op->scratch;
    memset(next, 0, (size_t)op->n_experts * sizeof *next);
    for (int64_t p = 0; p < n_picks; p++) next[op->experts[p]]++;
    int32_t n_before = 0;
    int64_t n_groups = 0;
    for (int32_t e = 0; e < op->n_experts; e++) {
        const int32_t n = next[e];
        op->counts[e] += n;
        if (n) {
            op->groups[n_groups] = e;
            op->firsts[n_groups++] = n_before;
        }
        next[e] = n_before;
        n_before += n;
    }
    for (; n_groups < op->n_groups; n_groups++) {
        op->groups[n_groups] = 0;
        op->firsts[n_groups] = n_before;
    }
    op->firsts[op->n_groups] = n_before;
    for (int64_t p = 0; p < n_picks; p++) {
        const int32_t place = next[op->experts[p]]++;
        op->places[p] = place;
        op->rows[place] = (int32_t)(p / op->n_used);
    }
}

static int64_t rows_per_task(const strata_matmul_picks *op, int32_t n_threads) {
    const int64_t most = MOST_BYTES / op->row_bytes;
    int64_t rows = op->n_out * op->n_groups / ((int64_t)n_threads * TASKS_PER_THREAD);
    if (rows > most) rows = most;
    return rows < FEWEST_ROWS ? FEWEST_ROWS : rows / FEWEST_ROWS * FEWEST_ROWS;
}

static int64_t tasks_per_group(const strata_matmul_picks *op, int32_t n_threads) {
    const int64_t per_task = rows_per_task(op, n_threads);
    return (op->n_out + per_task - 1) / per_task;
}

int64_t strata_tasks_matmul_picks(const strata_matmul_picks *op, int32_t n_threads) {
    return op->n_groups * tasks_per_group(op, n_threads);
}

void strata_do_matmul_picks(const strata_worker *worker, const strata_matmul_picks *op, int64_t task) {
    const int64_t n_each = tasks_per_group(op, worker->n_threads), per_task = rows_per_task(op, worker->n_threads);
    const int64_t group = task / n_each, first = task % n_each * per_task;
    const int64_t first_x = op->firsts[group], stop_x = op->firsts[group + 1];
    if (first_x == stop_x) return;
    const int64_t n_cols = op->n_cols, stop = first + per_task < op->n_out ? first + per_task : op->n_out;
    strata_dots dots = {
        .w = (const uint8_t *)op->weight + op->groups[group] * op->expert_bytes + first * op->row_bytes,
        .n_w = stop - first,
        .row_bytes = op->row_bytes,
        .n_cols = n_cols,
        .n_x = stop_x - first_x,
        .x = op->x + first_x * n_cols,
        .qs = op->qs ? op->qs + first_x * strata_code_stride(n_cols) : 0,
        .ds = op->qs ? op->ds + first_x * strata_scale_stride(n_cols) : 0,
        .y = op->y + first_x * op->n_out + first,
        .y_stride = op->n_out,
    };
    strata_multiply(worker, op->quant, &dots, op->scratch + worker->thread * n_cols);
}

static int64_t sum_parts(const strata_sum_picks *op) { return (op->n_cols + SUM_COLUMNS - 1) / SUM_COLUMNS; }

int64_t strata_tasks_sum_picks(const strata_sum_picks *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows * sum_parts(op), n_threads);
}

void strata_do_sum_picks(const strata_worker *worker, const strata_sum_picks *op, int64_t task) {
    const int64_t n_parts = sum_parts(op);
    int64_t first, stop;
    strata_share(op->n_rows * n_parts, worker->n_threads, task, &first, &stop);
    for (int64_t at = first; at < stop; at++) {
        const int64_t row = at / n_parts, column = at % n_parts * SUM_COLUMNS;
        const int64_t n = op->n_cols - column < SUM_COLUMNS ? op->n_cols - column : SUM_COLUMNS;
        float *y = op->y + row * op->n_cols + column;
        memset(y, 0, (size_t)n * sizeof *y);
        for (int32_t j = 0; j < op->n_used; j++) {
            const int64_t pick = row * op->n_used + j;
            worker->layers->add_scaled_row(y, op->x + op->places[pick] * op->n_cols + column, op->shares[pick], n);
        }
    }
}
