// process.hpp: a forked process that runs a body, and what it says through a pipe.
//
// Fork while this process has no other thread, or know what you do: an address sanitizer does not
// release in the child what they hold.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/core.h>

namespace sennit_test {

class Process {
 public:
  // The child's end of the pipe.
  class Voice {
   public:
    explicit Voice(int fd) : fd_(fd) {}
    // In one piece, where it is not longer than PIPE_BUF.
    void say(std::string_view text) const {
      [[maybe_unused]] const ssize_t written = write(fd_, text.data(), text.size());
    }

   private:
    int fd_;
  };

  Process() = default;  // none
  // The child runs body(voice), or says what body() returns, and ends with status 0.
  template <typename Body>
  explicit Process(Body&& body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      const Voice voice(ends[1]);
      if constexpr (std::is_invocable_v<Body, const Voice&>)
        body(voice);
      else
        voice.say(body());
      _exit(0);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(out_, other.out_);
    std::swap(said_, other.said_);
    return *this;
  }
  // Kills it, where it has not ended, or nobody has asked how it did.
  ~Process() {
    stop();
    if (out_ >= 0) close(out_);
  }

  pid_t pid() const { return pid_; }  // -1: none, or its end is known
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  // Kills it and waits for its end, also where it is stopped.
  void stop() {
    if (pid_ <= 0) return;
    signal(SIGCONT);
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // ---- what it says ----
  // To be polled for reading; -1: it has said all that it ever will.
  int out() const { return out_; }
  // Reads once what has come, at most `bytes`. Waits if there is nothing.
  std::string read_some(size_t bytes = 4096) {
    std::string text(bytes, '\0');
    const ssize_t n = out_ < 0 ? 0 : read(out_, text.data(), text.size());
    if (n <= 0 && out_ >= 0) close(std::exchange(out_, -1));
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  // The same, added to what it has said so far.
  void listen() { said_ += read_some(); }
  const std::string& said() const { return said_; }

  // ---- how it ends ----
  // True: it has, with this state (of waitpid).
  bool ended(int* state) {
    if (pid_ <= 0 || waitpid(pid_, state, WNOHANG) != pid_) return false;
    pid_ = -1;
    return true;
  }
  // Waits for its end: what it said, or what is wrong with how it ended. `killed_by`: the signal of
  // which it is to die.
  std::string outcome(std::chrono::nanoseconds limit = std::chrono::minutes(5), int killed_by = 0) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (out_ >= 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd entry{out_, POLLIN, 0};
      if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) <= 0)
        return "a process hangs; it said: " + said_;
      listen();
    }
    int state = 0;
    while (!ended(&state)) {  // its end of the pipe closes before it has ended
      if (std::chrono::steady_clock::now() > end)
        return "a process does not end; it said: " + said_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool right =
        killed_by == 0 ? state == 0 : WIFSIGNALED(state) && WTERMSIG(state) == killed_by;
    return right ? said_
                 : fmt::format("a process ended with state {:#x}; it said: {}", state, said_);
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  std::string said_;
};

}  // namespace sennit_test
