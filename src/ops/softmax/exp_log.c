/* ops/softmax/exp_log.c - exp and log of the elements of a vector, in double. */
#include <napier/softmax.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"
#include "core/math/f64.h"

enum { CHUNK = 1024 };

typedef struct exp_log_job {
    double (*function)(double x);
    napier_const_vector x;
    napier_vector y;
} exp_log_job;

static void one_element(void *argument, int64_t i) {
    const exp_log_job *const job = argument;
    const double x = napier_f64_load(job->x.data, job->x.dtype, i * job->x.stride);
    napier_f64_store(job->y.data, job->y.dtype, i * job->y.stride, job->function(x));
}

static napier_status each_element(napier_context *context, exp_log_job job) {
    const napier_argument all[] = {napier_row_argument("x", job.x, NAPIER_MAY_BE_OUT, job.x.size),
                                   napier_row_argument("y", napier_read_only_vector(job.y), NAPIER_IS_OUT, job.x.size)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, job.x.size, CHUNK, one_element, &job);
    return napier_stopped(context);
}

napier_status napier_exp(napier_context *context, napier_const_vector x, napier_vector y) {
    return each_element(context, (exp_log_job){napier_f64_exp, x, y});
}

napier_status napier_log(napier_context *context, napier_const_vector x, napier_vector y) {
    return each_element(context, (exp_log_job){napier_f64_log, x, y});
}
