// socket_test.cpp: which address of this host SENNIT_INTERFACE stands for, and which errors of
// accept() last.
// ctest not-under-tsan: it has one thread
#include "base/net/socket.hpp"

#include <arpa/inet.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/process.hpp"

namespace sennit {
namespace {

std::string said_of(const std::string& interface) {
  const Result<Address> address = interface_address(interface);
  return address ? address->host() : address.status().text();
}

TEST(InterfaceAddress, IsTheOneThatIsNamed) {
  EXPECT_EQ(said_of("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(said_of("fd00::1"), "fd00::1");
  EXPECT_NE(said_of("no such").find("SENNIT_INTERFACE=no such: no such interface"),
            std::string::npos);
}

TEST(InterfaceAddress, IsNoLinkLocalOne) {
  for (const char* address : {"fe80::1", "febf::1", "fe80::1%none-here"})
    EXPECT_NE(said_of(address).find("a link-local address is of no use"), std::string::npos);
  EXPECT_EQ(said_of("fec0::1"), "fec0::1");
}

TEST(Resolve, LeavesOutWhatIsOfNoUseToOthers) {
  const Result<std::vector<Address>> one = resolve("fe80::1,192.0.2.7,192.0.2.7", 9);
  ASSERT_TRUE(one.ok()) << one.status().text();
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().text(), "192.0.2.7:9");
  for (const char* address : {"fe80::1", "fe80::1%lo", "fe80::1%none-here"}) {
    const Status none = resolve(address, 9).status();
    EXPECT_EQ(none.kind(), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(none.text(), fmt::format("'{}' is a link-local address, which is of no use to other "
                                       "hosts; name another one",
                                       address));
  }
  // It may be known later.
  const std::string name(300, 'x');  // too long for anybody to be asked
  const Status unknown = resolve(name + ",fe80::1", 9).status();
  EXPECT_EQ(unknown.kind(), SENNIT_NOT_FOUND);
  EXPECT_NE(unknown.text().find("cannot resolve the name"), std::string::npos) << unknown.text();
}

// Linux also tells what a waiting connection has run into, and takes the connection away with it.
TEST(Accept, FailsAgainForWantOfSomethingAlone) {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP})
    EXPECT_TRUE(accept_fails_again(error)) << error;
  for (const int error : {EAGAIN, EINTR, ECONNABORTED, EPROTO, ENETDOWN, ENETUNREACH, EHOSTUNREACH,
                          EHOSTDOWN, ENONET, ENOPROTOOPT})
    EXPECT_FALSE(accept_fails_again(error)) << error;
}

// Gives the loopback interface of a network of its own an address, and nothing besides.
std::string said_of_an_interface_with(const char* address) {
  return sennit_test::Process([address]() -> std::string {
           if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return "";
           const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
           in6_ifreq request{};
           inet_pton(AF_INET6, address, &request.ifr6_addr);
           request.ifr6_prefixlen = 64;
           request.ifr6_ifindex = static_cast<int>(if_nametoindex("lo"));
           if (fd < 0 || ioctl(fd, SIOCSIFADDR, &request) != 0) return "";
           return said_of("lo");
         })
      .outcome();
}

TEST(InterfaceAddress, OfAnInterfaceIsOneThatOthersCanUse) {
  const std::string usable = said_of_an_interface_with("fd00::1");
  if (usable.empty()) GTEST_SKIP() << "SKIPPED: no network namespace with IPv6 here";
  EXPECT_EQ(usable, "fd00::1");
  EXPECT_NE(said_of_an_interface_with("fe80::1").find(
                "SENNIT_INTERFACE=lo: it has link-local addresses alone"),
            std::string::npos);
}

}  // namespace
}  // namespace sennit
