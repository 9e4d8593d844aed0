/* napier/cuda.h - Napier on a GPU. Experimental: a 1.x may change it (docs/stability.md). It includes one header per part of the library, but for napier/cuda/model.h, whose
 * functions only builds with NAPIER_MODEL have. napier/cuda/device.h has the rules that all calls share. Including it needs no CUDA header. */
#ifndef NAPIER_CUDA_H
#define NAPIER_CUDA_H

#include <napier/cuda/attention.h>
#include <napier/cuda/device.h>
#include <napier/cuda/sample.h>
#include <napier/cuda/softmax.h>
#include <napier/cuda/sparsemax.h>
#include <napier/cuda/rl.h>
#include <napier/cuda/linear.h>
#include <napier/cuda/umap.h>

#endif
