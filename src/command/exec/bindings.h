/* bindings.h: what `sennit exec -v` tells the loader's audit library, bindings.c. */
#pragma once

/* In lib/sennit, beside what is preloaded. */
#define SENNIT_BINDINGS_FILE "libsennit_bindings.so"

/* FUNCTION:FILE: the function that is asked about, and sennit's library that should have it. */
#define SENNIT_BINDINGS_VARIABLE "SENNIT_EXEC_BINDINGS"
