// making_threads.hpp: pthread_create in place of the system's, for the libraries of a test as well:
// the test is asked before each thread, and may say that there is none left.
//
// It defines that function: one file of a program includes it.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

// A sanitizer's, which has to know of every thread; null without one.
extern "C" __attribute__((weak)) int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*,
                                                                  void* (*)(void*), void*);

namespace sennit_test {

// Asked in the thread that makes another one: 0, or the error that is returned instead. Null: all
// threads are made.
inline std::atomic<int (*)()> g_before_thread{nullptr};

}  // namespace sennit_test

// See above.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* how,
                                                                     void* (*run)(void*),
                                                                     void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = __interceptor_pthread_create
                                 ? &__interceptor_pthread_create
                                 : reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (int (*const before)() = sennit_test::g_before_thread)
    if (const int error = before(); error != 0) return error;
  return create(thread, how, run, argument);
}
