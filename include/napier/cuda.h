/* napier/cuda.h - Napier on a GPU: one header per room; what all calls have in common is told in napier/cuda/device.h.
 * No header of CUDA is needed to include it. */
#ifndef NAPIER_CUDA_H
#define NAPIER_CUDA_H

#include <napier/cuda/attention.h>
#include <napier/cuda/device.h>
#include <napier/cuda/softmax.h>
#include <napier/cuda/rl.h>
#include <napier/cuda/linear.h>
#include <napier/cuda/umap.h>

#endif
