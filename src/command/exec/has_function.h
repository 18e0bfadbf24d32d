/* has_function.h: how a file has a function. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { SENNIT_LACKS, SENNIT_CALLS, SENNIT_EXPORTS, SENNIT_HIDES };

/* By the file, nothing of which runs: it calls one of another file's, has one that other files see,
 * or has one for itself alone. What is not an ELF file lacks it. */
int sennit_has_function(const char* path, const char* function);

#ifdef __cplusplus
}
#endif
