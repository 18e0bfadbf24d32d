// mutex.hpp: std::mutex and its locks, annotated so that clang proves who holds what. The
// sanitizer builds make -Wthread-safety an error; elsewhere the annotations are nothing.
//
//   Mutex mutex_;
//   int waiting_ SENNIT_GUARDED_BY(mutex_) = 0;
//   void wake() SENNIT_REQUIRES(mutex_);      // the caller holds it
//   void post() SENNIT_EXCLUDES(mutex_);      // the caller does not
//   { const MutexLock lock(mutex_); waiting_++; }
//
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SENNIT_ATTRIBUTE(x) __attribute__((x))
#else
#define SENNIT_ATTRIBUTE(x)
#endif
#define SENNIT_CAPABILITY(name) SENNIT_ATTRIBUTE(capability(name))
#define SENNIT_SCOPED_CAPABILITY SENNIT_ATTRIBUTE(scoped_lockable)
#define SENNIT_GUARDED_BY(mutex) SENNIT_ATTRIBUTE(guarded_by(mutex))
#define SENNIT_POINTEE_GUARDED_BY(mutex) SENNIT_ATTRIBUTE(pt_guarded_by(mutex))
#define SENNIT_REQUIRES(...) SENNIT_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define SENNIT_EXCLUDES(...) SENNIT_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define SENNIT_ACQUIRE(...) SENNIT_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define SENNIT_TRY_ACQUIRE(...) SENNIT_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define SENNIT_RELEASE(...) SENNIT_ATTRIBUTE(release_capability(__VA_ARGS__))
#define SENNIT_RETURNS_MUTEX(mutex) SENNIT_ATTRIBUTE(lock_returned(mutex))
#define SENNIT_ASSERT_HELD(mutex) SENNIT_ATTRIBUTE(assert_capability(mutex))
// Where the analysis cannot follow, with the reason beside it.
#define SENNIT_NO_THREAD_SAFETY_ANALYSIS SENNIT_ATTRIBUTE(no_thread_safety_analysis)

namespace sennit {

// std::mutex as the analysis sees it. Held by a MutexLock, which a Condition can wait with.
class SENNIT_CAPABILITY("mutex") Mutex {
 public:
  void lock() SENNIT_ACQUIRE() { mutex_.lock(); }
  bool try_lock() SENNIT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() SENNIT_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Held from here to the end of the scope, but for what lies between unlock() and lock().
class SENNIT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SENNIT_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  // Takes over one that the caller holds already, such as after try_lock().
  MutexLock(Mutex& mutex, std::adopt_lock_t) SENNIT_REQUIRES(mutex)
      : lock_(mutex.mutex_, std::adopt_lock) {}
  ~MutexLock() SENNIT_RELEASE() {}  // NOLINT: the attribute needs a body
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void unlock() SENNIT_RELEASE() { lock_.unlock(); }
  void lock() SENNIT_ACQUIRE() { lock_.lock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// Waiting gives the mutex back meanwhile, and holds it again afterwards. Conditions are loops in
// the caller: of a predicate, a function of its own, the analysis would not know what it holds.
class Condition {
 public:
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& time) {
    return condition_.wait_until(lock.lock_, time);
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return condition_.wait_for(lock.lock_, time);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sennit
