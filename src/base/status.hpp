// status.hpp: errors as values.
//
// The function that first decides what an error is logs it, once; callers pass it on. The text says
// what, where and what to do. Outputs are set only after success. SENNIT_CHECK is for programmer
// errors and must never be reachable from user input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sennit/sennit.h"

namespace sennit {

using ErrorKind = sennit_status_t;

// "Ok", or an error's kind and text. Copies share the text; an ok one is a null pointer.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorKind kind, std::string text)
      : error_(kind == SENNIT_OK ? nullptr
                                 : std::make_shared<const Error>(Error{kind, std::move(text)})) {}

  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  ErrorKind kind() const { return error_ ? error_->kind : SENNIT_OK; }
  const std::string& text() const {
    static const std::string kNone;
    return error_ ? error_->text : kNone;
  }
  // The same kind with "context: " put before the text.
  Status with_context(const std::string& context) const {
    return ok() ? *this : Status(kind(), context + ": " + text());
  }

 private:
  struct Error {
    ErrorKind kind;
    std::string text;
  };
  std::shared_ptr<const Error> error_;
};

// A T, or the Status of why there is none. That must not be ok: the Result of an ok Status alone
// has neither. value(), * and -> are for where ok() holds; status() is then ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// What the user gave is wrong; `text` says what, and what would be right.
inline Status invalid(std::string text) { return {SENNIT_INVALID_ARGUMENT, std::move(text)}; }

#define SENNIT_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                         \
    if (::sennit::Status sennit_error = (expression); !sennit_error.ok()) return sennit_error; \
  } while (0)

#define SENNIT_CHECK(condition)                                                                  \
  do {                                                                                           \
    if (!(condition)) [[unlikely]] {                                                             \
      std::fprintf(stderr, "sennit: %s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                              \
    }                                                                                            \
  } while (0)

}  // namespace sennit
