// shared_library.hpp: libraries that may be missing where sennit runs. They are opened at run time,
// by the name that their interface has (the soname), so that one build runs with and without them;
// only their headers are needed to build.
//
//   struct Verbs : SharedLibrary {
//     Verbs() : SharedLibrary("libibverbs.so.1") {}
//     const Function<decltype(ibv_open_device)> open_device{*this, "ibv_open_device"};
//   };
//   const ForeignCall call;  // so that no fork finds it half opened (base/process/forked.hpp)
//   static const Verbs verbs;
//   if (verbs.usable()) verbs.open_device(device);
//
// A library stays open as long as the process lives: in a forked child glibc's dlclose() may wait
// for a thread that only the parent has.
#pragma once

#include <cstdint>
#include <string>

namespace sennit {

class SharedLibrary {
 public:
  // Where the symbols go. `global`: where a library's own plug-ins look for them there.
  enum class Symbols : uint8_t { local, global };
  // Whether a library without that function is of no use.
  enum class Need : uint8_t { required, optional };

  // Opens it. Where that fails, or a required function is missing, it says so under
  // SENNIT_LOG=info, and is not usable.
  explicit SharedLibrary(const char* soname, Symbols symbols = Symbols::local);
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  bool usable() const { return why_not_.empty(); }
  // For messages: "libibverbs.so.1 is not installed here". Empty where it is usable.
  const std::string& why_not() const { return why_not_; }

  // A function of the library, or of one that it needs itself. Called only where the library is
  // usable; an optional one only where it is there.
  template <typename Type>
  class Function;
  template <typename Result, typename... Arguments>
  class Function<Result(Arguments...)> {
   public:
    Function(SharedLibrary& library, const char* name, Need need = Need::required)
        : function_(reinterpret_cast<Result (*)(Arguments...)>(library.find(name, need))) {}
    explicit operator bool() const { return function_ != nullptr; }
    Result operator()(Arguments... arguments) const { return function_(arguments...); }

   private:
    Result (*function_)(Arguments...);
  };

 private:
  void* find(const char* name, Need need);  // nullptr: not there

  const char* soname_;
  void* handle_;
  std::string why_not_;
};

}  // namespace sennit
