// sennit.hpp: the C++ interface: RAII over sennit.h, header only, C++17 and later; errors are
// values.
//
//   auto comm = sennit::Communicator::from_environment();
//   if (!comm) {
//     std::fputs(comm.error().text.c_str(), stderr);
//     return 1;
//   }
//   std::vector<float> x(1024, 1.0f);
//   sennit::Error error = comm->all_reduce(x.data(), x.data(), x.size(), sennit::sum);
//   if (error) std::fputs(error.text.c_str(), stderr);
//
// A Communicator is movable and not copyable; its destructor frees the handle and waits for nobody
// (call finalize() first). A Work's destructor waits. Element types are deduced from the pointers:
// signed and unsigned 8-, 32- and 64-bit integers, float, double, and the 8- and 16-bit floats
// through sennit::half, bfloat16, float8_*.
#ifndef SENNIT_SENNIT_HPP
#define SENNIT_SENNIT_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sennit/sennit.h"

namespace sennit {
inline namespace v0 {  // apart from the library's own classes of the same names

// Bit patterns only; sennit does the arithmetic.
struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
struct float8_e4m3 {
  uint8_t bits;
};
struct float8_e5m2 {
  uint8_t bits;
};

template <typename T>
constexpr sennit_type_t type_of() {
  if constexpr (std::is_same_v<T, float>)
    return SENNIT_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return SENNIT_FLOAT64;
  else if constexpr (std::is_same_v<T, half>)
    return SENNIT_FLOAT16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return SENNIT_BFLOAT16;
  else if constexpr (std::is_same_v<T, float8_e4m3>)
    return SENNIT_FLOAT8_E4M3;
  else if constexpr (std::is_same_v<T, float8_e5m2>)
    return SENNIT_FLOAT8_E5M2;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    return std::is_signed_v<T> ? SENNIT_INT8 : SENNIT_UINT8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return std::is_signed_v<T> ? SENNIT_INT32 : SENNIT_UINT32;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? SENNIT_INT64 : SENNIT_UINT64;
  else
    static_assert(sizeof(T) == 0, "sennit has no such element type");
}

inline constexpr sennit_op_t sum = SENNIT_SUM;
inline constexpr sennit_op_t prod = SENNIT_PROD;
inline constexpr sennit_op_t min = SENNIT_MIN;
inline constexpr sennit_op_t max = SENNIT_MAX;
inline constexpr sennit_op_t avg = SENNIT_AVG;
inline constexpr sennit_op_t band = SENNIT_BAND;
inline constexpr sennit_op_t bor = SENNIT_BOR;
inline constexpr sennit_op_t bxor = SENNIT_BXOR;

// False when there is none: `if (Error e = comm.barrier()) ...`.
struct [[nodiscard]] Error {
  sennit_status_t status = SENNIT_OK;
  std::string text;
  explicit operator bool() const { return status != SENNIT_OK; }
  static Error from(sennit_status_t status) {
    return status == SENNIT_OK ? Error{} : Error{status, sennit_last_error()};
  }
};

// A T or an Error.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}
  Expected(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return value_.has_value(); }
  T* operator->() { return &*value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

// A nonblocking call under way. The buffers belong to it until it is done.
class Work {
 public:
  explicit Work(sennit_work_t handle) : handle_(handle) {}
  Work(Work&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Work& operator=(Work&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Work() {
    if (handle_) sennit_work_free(handle_);
  }
  Error wait() { return Error::from(sennit_work_wait(handle_, -1)); }
  // status SENNIT_IN_PROGRESS when it is not done by then.
  Error wait_for_ms(int64_t timeout_ms) {
    return Error::from(sennit_work_wait(handle_, timeout_ms));
  }
  // The caller's own time for it is over; wait() then tells who is late. See sennit_work_expire.
  Error expire(int64_t waited_ms) { return Error::from(sennit_work_expire(handle_, waited_ms)); }
  Error test() { return Error::from(sennit_work_test(handle_)); }

 private:
  sennit_work_t handle_;
};

class Communicator {
 public:
  explicit Communicator(sennit_comm_t handle) : handle_(handle) {}
  Communicator(Communicator&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), told_(std::move(other.told_)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(told_, other.told_);
    return *this;
  }
  ~Communicator() {
    if (handle_) sennit_comm_destroy(handle_);
  }

  static Expected<Communicator> from_environment(const sennit_config_t* config = nullptr) {
    return made([&](sennit_comm_t* c) { return sennit_comm_init_env(c, config); });
  }
  static Expected<Communicator> from_unique_id(const sennit_unique_id_t& id, int rank, int size,
                                               const sennit_config_t* config = nullptr) {
    return made(
        [&](sennit_comm_t* c) { return sennit_comm_init_rank(c, size, &id, rank, config); });
  }

  int rank() const {
    int value = -1;
    sennit_comm_rank(handle_, &value);
    return value;
  }
  int size() const {
    int value = 0;
    sennit_comm_size(handle_, &value);
    return value;
  }
  sennit_comm_t handle() const { return handle_; }
  Expected<Communicator> dup() const {
    return made([&](sennit_comm_t* c) { return sennit_comm_dup(handle_, c); });
  }
  // No value, and no error either, for SENNIT_NO_COLOR.
  Expected<std::optional<Communicator>> split(int color, int key) const {
    sennit_comm_t part = nullptr;
    if (Error e = Error::from(sennit_comm_split(handle_, color, key, &part))) return e;
    std::optional<Communicator> result;
    if (part) result.emplace(part);
    return result;
  }
  Error finalize() { return Error::from(sennit_comm_finalize(handle_)); }
  Error abort() { return Error::from(sennit_comm_abort(handle_)); }
  Error async_error() const { return Error::from(sennit_comm_get_async_error(handle_)); }
  std::vector<int> failed_ranks() const {
    int count = 0;
    sennit_comm_failed_ranks(handle_, nullptr, 0, &count);
    std::vector<int> ranks(static_cast<size_t>(count));
    sennit_comm_failed_ranks(handle_, ranks.data(), count, &count);
    return ranks;
  }

  // Has `told` called with what is found wrong with the job while it runs, as JSON; an empty one:
  // nothing is told any more. It throws nothing. See sennit_comm_on_verdict.
  Error on_verdict(std::function<void(const char* json)> told) {
    auto kept = std::make_unique<std::function<void(const char*)>>(std::move(told));
    sennit_verdict_function_t call = nullptr;
    if (*kept)
      call = [](const char* json, void* user) {
        (*static_cast<std::function<void(const char*)>*>(user))(json);
      };
    const Error error = Error::from(sennit_comm_on_verdict(handle_, call, kept.get()));
    if (!error) told_ = std::move(kept);  // the one before is not being called any more
    return error;
  }

  // Memory of your own that peers on this host can then read in place: see sennit_mem_register.
  Error register_memory(void* memory, size_t bytes) {
    return Error::from(sennit_mem_register(handle_, memory, bytes));
  }
  Error deregister_memory(void* memory) {
    return Error::from(sennit_mem_deregister(handle_, memory));
  }

  template <typename T>
  Error all_reduce(const T* send, T* recv, size_t count, sennit_op_t op = sum) {
    return Error::from(sennit_all_reduce(send, recv, count, type_of<T>(), op, handle_));
  }
  template <typename T>
  Error reduce_scatter(const T* send, T* recv, size_t count, sennit_op_t op = sum) {
    return Error::from(sennit_reduce_scatter(send, recv, count, type_of<T>(), op, handle_));
  }
  template <typename T>
  Error all_gather(const T* send, T* recv, size_t count) {
    return Error::from(sennit_all_gather(send, recv, count, type_of<T>(), handle_));
  }
  template <typename T>
  Error broadcast(T* data, size_t count, int root) {
    return Error::from(sennit_broadcast(data, data, count, type_of<T>(), root, handle_));
  }
  template <typename T>
  Error reduce(const T* send, T* recv, size_t count, sennit_op_t op, int root) {
    return Error::from(sennit_reduce(send, recv, count, type_of<T>(), op, root, handle_));
  }
  template <typename T>
  Error gather(const T* send, T* recv, size_t count, int root) {
    return Error::from(sennit_gather(send, recv, count, type_of<T>(), root, handle_));
  }
  template <typename T>
  Error scatter(const T* send, T* recv, size_t count, int root) {
    return Error::from(sennit_scatter(send, recv, count, type_of<T>(), root, handle_));
  }
  template <typename T>
  Error all_to_all(const T* send, T* recv, size_t count) {
    return Error::from(sennit_all_to_all(send, recv, count, type_of<T>(), handle_));
  }
  Error barrier() { return Error::from(sennit_barrier(handle_)); }
  template <typename T>
  Error send(const T* data, size_t count, int peer, int tag = 0) {
    return Error::from(sennit_send_tagged(data, count, type_of<T>(), peer, tag, handle_));
  }
  template <typename T>
  Error recv(T* data, size_t count, int peer, int tag = 0, int* source = nullptr) {
    return Error::from(sennit_recv_tagged(data, count, type_of<T>(), peer, tag, handle_, source));
  }
  // Nonblocking twins of what training overlaps; the rest through sennit.h with handle().
  template <typename T>
  Expected<Work> start_all_reduce(const T* send, T* recv, size_t count, sennit_op_t op = sum) {
    return started([&](sennit_work_t* w) {
      return sennit_all_reduce_start(send, recv, count, type_of<T>(), op, handle_, w);
    });
  }
  template <typename T>
  Expected<Work> start_all_gather(const T* send, T* recv, size_t count) {
    return started([&](sennit_work_t* w) {
      return sennit_all_gather_start(send, recv, count, type_of<T>(), handle_, w);
    });
  }
  template <typename T>
  Expected<Work> start_reduce_scatter(const T* send, T* recv, size_t count, sennit_op_t op = sum) {
    return started([&](sennit_work_t* w) {
      return sennit_reduce_scatter_start(send, recv, count, type_of<T>(), op, handle_, w);
    });
  }
  template <typename T>
  Expected<Work> start_send(const T* data, size_t count, int peer, int tag = 0) {
    return started([&](sennit_work_t* w) {
      return sennit_send_tagged_start(data, count, type_of<T>(), peer, tag, handle_, w);
    });
  }
  template <typename T>
  Expected<Work> start_recv(T* data, size_t count, int peer, int tag = 0) {
    return started([&](sennit_work_t* w) {
      return sennit_recv_tagged_start(data, count, type_of<T>(), peer, tag, handle_, w);
    });
  }

 private:
  template <typename F>
  static Expected<Communicator> made(F&& f) {
    sennit_comm_t handle = nullptr;
    if (Error e = Error::from(f(&handle))) return e;
    return Communicator(handle);
  }
  template <typename F>
  static Expected<Work> started(F&& f) {
    sennit_work_t handle = nullptr;
    if (Error e = Error::from(f(&handle))) return e;
    return Work(handle);
  }

  sennit_comm_t handle_;
  std::unique_ptr<std::function<void(const char*)>> told_;  // stays where it is
};

}  // namespace v0
}  // namespace sennit

#endif
