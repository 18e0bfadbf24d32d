/* fake_cuda.c: stands for CUDA's driver, libcuda.so.1, with what sennit asks of it: whether memory
 * is a device's, and to wait for a stream. The test says what it answers. */
#include <stddef.h>

struct Answers {
  const char* device_memory; /* of this many bytes */
  size_t device_bytes;
  int stream_error;
  int streams_awaited;
};
extern struct Answers fake_cuda_answers;
__attribute__((visibility("default"))) struct Answers fake_cuda_answers = {NULL, 0, 0, 0};

enum { kSuccess = 0, kInvalidValue = 1, kMemoryType = 2, kTypeDevice = 2 };

__attribute__((visibility("default"))) int cuPointerGetAttribute(void* data, int attribute,
                                                                 unsigned long long pointer);
int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  const unsigned long long first = (unsigned long long)fake_cuda_answers.device_memory;
  if (attribute != kMemoryType || pointer < first ||
      pointer >= first + fake_cuda_answers.device_bytes)
    return kInvalidValue;
  *(unsigned*)data = kTypeDevice;
  return kSuccess;
}

__attribute__((visibility("default"))) int cuStreamSynchronize(void* stream);
int cuStreamSynchronize(void* stream) {
  (void)stream;
  fake_cuda_answers.streams_awaited++;
  return fake_cuda_answers.stream_error;
}
