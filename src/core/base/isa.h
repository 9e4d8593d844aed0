/* core/base/isa.h - the choice of an instruction set. */
#ifndef NAPIER_CORE_BASE_ISA_H
#define NAPIER_CORE_BASE_ISA_H

#include <napier/types.h>

/* The fastest instruction set of this build and this machine. */
napier_isa napier_isa_best(void);

#endif
