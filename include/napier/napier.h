/* napier/napier.h - all of Napier. */
#ifndef NAPIER_NAPIER_H
#define NAPIER_NAPIER_H

#include <napier/attention.h>
#include <napier/cuda.h>
#include <napier/layers.h>
#include <napier/linear.h>
#include <napier/generate.h>
#include <napier/logcumsumexp.h>
#include <napier/model.h>
#include <napier/opencl.h>
#include <napier/rl.h>
#include <napier/softmax.h>
#include <napier/sample.h>
#include <napier/shards.h>
#include <napier/sparsemax.h>
#include <napier/tokenizer.h>
#include <napier/types.h>
#include <napier/umap.h>

#endif
