// flow.hpp: a stream of bytes over TCP from the network namespace of one process to another's.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace sennit_test {

// A TCP socket of that namespace, which every thread may use; it gives up on a peer after a minute.
inline int socket_in_namespace_of(pid_t process) {
  int made = -1;
  std::thread([&] {  // whose end is the end of its stay there
    const int space = open(fmt::format("/proc/{}/ns/net", process).c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(space, CLONE_NEWNET) == 0) made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    close(space);
  })
      .join();
  const timeval minute{60, 0};
  setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
  return made;
}

// Begins when it is made. What both sides count may be read at any time.
class Flow {
 public:
  // Until that many bytes are sent, or stop() is called.
  Flow(pid_t from, pid_t to, const std::string& address_of_to, int64_t bytes)
      : listener_(socket_in_namespace_of(to)), sender_(socket_in_namespace_of(from)), most_(bytes) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, address_of_to.c_str(), &address.sin_addr);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    receiving_ = std::thread([this] { receive(); });
    sending_ = std::thread([this, address] { send(address); });
  }
  Flow(const Flow&) = delete;
  ~Flow() {
    stop();
    wait();
    close(listener_);
    close(sender_);
  }

  int64_t sent() const { return sent_; }
  int64_t received() const { return received_; }
  void stop() { stopped_ = true; }
  // To the end of the flow. The result is how long it took, in seconds, its connecting included.
  double wait() {
    if (sending_.joinable()) sending_.join();
    if (receiving_.joinable()) receiving_.join();
    return seconds_;
  }

 private:
  void send(const sockaddr_in& address) {
    const std::vector<char> data(1 << 16);
    if (connect(sender_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
    while (!stopped_ && sent_ < most_) {
      const auto left = static_cast<size_t>(most_ - sent_);
      const ssize_t n = ::send(sender_, data.data(), std::min(left, data.size()), MSG_NOSIGNAL);
      if (n <= 0) break;
      sent_ += n;
    }
    shutdown(sender_, SHUT_WR);
  }
  void receive() {
    const auto began = std::chrono::steady_clock::now();
    std::vector<char> data(1 << 16);
    const int socket = accept(listener_, nullptr, nullptr);
    for (ssize_t n; (n = recv(socket, data.data(), data.size(), 0)) > 0;) received_ += n;
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    close(socket);
  }

  int listener_, sender_;
  int64_t most_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int64_t> sent_ = 0, received_ = 0;
  double seconds_ = 0;
  std::thread receiving_, sending_;
};

}  // namespace sennit_test
