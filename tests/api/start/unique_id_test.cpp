// unique_id_test.cpp: unique ids whose maker is not rank 0: another rank, none of the job, one that
// dies; ids that nobody uses; and ids of an address, which every rank makes for itself.
// ctest not-under-tsan: its ranks are processes whose threads are counted, and the sanitizer has its own
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "api/start/unique_id.hpp"
#include "base/net/reserved_port.hpp"
#include "base/net/socket.hpp"
#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/process_counts.hpp"
#include "tests/support/processes.hpp"

namespace sennit {
namespace {

using sennit_test::descriptors;
using sennit_test::eventually;
using sennit_test::Process;
using sennit_test::Processes;
using sennit_test::threads;

constexpr auto kLimit = std::chrono::seconds(60);

// The id goes from the maker to the ranks through memory that they share.
class Handed {
 public:
  void give(const sennit_unique_id_t& id) const {
    std::memcpy(&page_->id, &id, sizeof id);
    page_->there.store(true);
  }
  sennit_unique_id_t wait() const {
    while (!page_->there.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return page_->id;
  }
  Handed() {
    void* const memory =
        mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page_ = new (memory) Page;
  }
  ~Handed() { munmap(page_, sizeof(Page)); }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;

 private:
  struct Page {
    sennit_unique_id_t id{};
    std::atomic<bool> there{false};
  };
  Page* page_;
};

sennit_unique_id_t make_id() {
  sennit_unique_id_t id{};
  EXPECT_EQ(sennit_get_unique_id(&id), SENNIT_OK) << sennit_last_error();
  return id;
}

// A process that makes the id, says "made", and waits for its end.
Process maker_in_no_job(const Handed& id) {
  return Process([&](const Process::Voice& voice) {
    id.give(make_id());
    voice.say("made");
    pause();
  });
}

// Joins, sums the ranks, leaves: "ok", or what went wrong.
std::string join_and_sum(const sennit_unique_id_t& id, int rank, int size) {
  sennit_comm_t comm = nullptr;
  if (sennit_comm_init_rank(&comm, size, &id, rank, nullptr) != SENNIT_OK)
    return sennit_last_error();
  int32_t mine = rank + 1, sum = 0;
  if (sennit_all_reduce(&mine, &sum, 1, SENNIT_INT32, SENNIT_SUM, comm) != SENNIT_OK)
    return sennit_last_error();
  if (sennit_comm_finalize(comm) != SENNIT_OK) return sennit_last_error();
  sennit_comm_destroy(comm);
  return sum == size * (size + 1) / 2 ? "ok" : "a sum of " + std::to_string(sum);
}

void expect_all_ok(Processes& ranks) {
  const auto reports = ranks.reports(kLimit);
  for (size_t r = 0; r < reports.size(); r++) EXPECT_EQ(reports[r].value_or("nothing"), "ok") << r;
}

TEST(Maker, IsAnotherRank) {
  for (const bool late : {false, true}) {
    Handed id;
    Processes ranks(4, [&](int rank) -> std::string {
      if (rank == 2) id.give(make_id());
      const sennit_unique_id_t got = id.wait();
      // Then the others are there, and wait, when it comes; else it mostly comes first.
      if (rank == 0 && late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const int before = descriptors();
      if (std::string said = join_and_sum(got, rank, 4); said != "ok") return said;
      // Of the maker's port and its thread nothing stays.
      const int own = rank == 2 ? before - 3 : before;
      if (!eventually([&] { return descriptors() <= own && threads() == 1; }))
        return "descriptors: " + std::to_string(descriptors()) + " instead of " +
               std::to_string(own) + ", threads " + std::to_string(threads());
      return "ok";
    });
    expect_all_ok(ranks);
  }
}

TEST(Maker, IsInNoJob) {
  const Handed id;
  Process maker = maker_in_no_job(id);
  ASSERT_EQ(maker.read_some(), "made");
  Processes ranks(3, [&](int rank) { return join_and_sum(id.wait(), rank, 3); });
  expect_all_ok(ranks);
}

TEST(Maker, IsRankZeroAndSlow) {
  const Handed id;
  Processes ranks(3, [&](int rank) {
    if (rank == 0) {
      id.give(make_id());
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    return join_and_sum(id.wait(), rank, 3);
  });
  expect_all_ok(ranks);
}

TEST(Maker, DiesBeforeRankZeroComes) {
  const Handed id;
  Process maker = maker_in_no_job(id);
  ASSERT_EQ(maker.read_some(), "made");
  sennit_test::Arrivals about_to_join;
  Processes ranks(3, [&](int rank) {
    if (rank == 0 && !about_to_join.await(3, kLimit)) return std::string("nobody comes");
    about_to_join.add();
    return join_and_sum(id.wait(), rank, 3);
  });
  ASSERT_TRUE(about_to_join.await(2, kLimit));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // mostly they wait there by then
  maker.stop();
  about_to_join.add();  // rank 0 may come
  const auto begun = std::chrono::steady_clock::now();
  const auto reports = ranks.reports(kLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  for (const auto& report : reports)
    EXPECT_NE(report.value_or("nothing").find("the process that made the unique id"),
              std::string::npos)
        << report.value_or("nothing");
}

TEST(Maker, OfAnIdInUseIsToldSo) {
  const Handed id;
  Process maker = maker_in_no_job(id);
  ASSERT_EQ(maker.read_some(), "made");
  const sennit_unique_id_t got = id.wait();
  const std::span bytes(reinterpret_cast<const std::byte*>(got.internal), sizeof got.internal);
  const auto first = options_from_unique_id(bytes, 0, 2);
  ASSERT_TRUE(first.ok()) << first.status().text();
  EXPECT_GE(first->root_listener_fd, 0);
  const auto second = options_from_unique_id(bytes, 0, 2);
  EXPECT_EQ(second.status().kind(), SENNIT_INVALID_ARGUMENT);
  EXPECT_NE(second.status().text().find("each id starts one job only"), std::string::npos)
      << second.status().text();
  close_socket(first->root_listener_fd);
}

TEST(UnusedIds, LeaveNothing) {
  Process one([]() -> std::string {
    setenv("SENNIT_ARRIVAL_TIMEOUT", "20", 1);
    const int descriptors_before = descriptors(), threads_before = threads();
    for (int i = 0; i < 4; i++) {
      for (int k = 0; k < 250; k++) make_id();
      if (!eventually([&] { return descriptors() <= descriptors_before; }))
        return std::to_string(descriptors()) + " descriptors";
    }
    if (!eventually([&] { return threads() == threads_before; })) return "a thread";
    return "ok";
  });
  EXPECT_EQ(one.outcome(kLimit), "ok");
}

TEST(UnusedIds, CanBeForgotten) {
  Process one([]() -> std::string {
    const int before = descriptors();
    for (int i = 0; i < 1000; i++) {
      const sennit_unique_id_t id = make_id();
      if (sennit_forget_unique_id(&id) != SENNIT_OK) return sennit_last_error();
    }
    return eventually([&] { return descriptors() <= before; }) ? "ok" : "descriptors";
  });
  EXPECT_EQ(one.outcome(kLimit), "ok");
}

// Nobody comes to the port of a job of one rank, nor of one that never begins.
TEST(UsedIds, LeaveNoPort) {
  Process one([]() -> std::string {
    const int before = descriptors();
    for (int i = 0; i < 3; i++)
      if (const std::string said = join_and_sum(make_id(), 0, 1); said != "ok") return said;
    sennit_config_t wrong = SENNIT_CONFIG_INIT;
    wrong.arrival_timeout_ms = -1;
    sennit_comm_t comm = nullptr;
    const sennit_unique_id_t id = make_id();
    if (sennit_comm_init_rank(&comm, 1, &id, 0, &wrong) != SENNIT_INVALID_ARGUMENT)
      return "a wrong config";
    if (const std::string said = join_and_sum(id, 0, 1); said != "ok") return "the id: " + said;
    const sennit_unique_id_t another = make_id();
    setenv("SENNIT_TRANSPORTS", "carrier", 1);
    if (sennit_comm_init_rank(&comm, 2, &another, 0, nullptr) != SENNIT_INVALID_ARGUMENT)
      return "a wrong option";
    sennit_unique_id_t none;
    if (sennit_get_unique_id(&none) != SENNIT_INVALID_ARGUMENT) return "an id for a wrong option";
    return eventually([&] { return descriptors() <= before; })
               ? "ok"
               : std::to_string(descriptors() - before) + " descriptors";
  });
  EXPECT_EQ(one.outcome(kLimit), "ok");
}

// Where rank 0 of a job of processes of this host may listen.
std::string address_above(const ReservedPort& port) {
  return "127.0.0.1:" + std::to_string(port.number() + 1);
}

TEST(IdsOfAnAddress, AreMadeByEveryRankForItself) {
  const ReservedPort port;
  const std::string address = address_above(port);
  Processes ranks(3,
                  [&](int rank) -> std::string {
                    for (int job = 0; job < 2; job++) {  // one after the other
                      sennit_unique_id_t id;
                      if (sennit_get_unique_id_at(address.c_str(), &id) != SENNIT_OK)
                        return sennit_last_error();
                      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
                      if (std::string said = join_and_sum(id, rank, 3); said != "ok") return said;
                    }
                    return "ok";
                  },
                  {{"SENNIT_SECRET", "words of a test"}});
  expect_all_ok(ranks);
}

TEST(IdsOfAnAddress, AreOfOneSecret) {
  const ReservedPort port;
  const std::string address = address_above(port);
  Processes ranks(2, [&](int rank) -> std::string {
    setenv("SENNIT_SECRET", rank == 0 ? "words of a test" : "words of another", 1);
    setenv("SENNIT_ARRIVAL_TIMEOUT", "2000", 1);
    sennit_unique_id_t id;
    if (sennit_get_unique_id_at(address.c_str(), &id) != SENNIT_OK) return sennit_last_error();
    return join_and_sum(id, rank, 2) == "ok" ? "joined" : "ok";
  });
  expect_all_ok(ranks);
}

TEST(IdsOfAnAddress, SayWhatIsMissing) {
  Process one([]() -> std::string {
    sennit_unique_id_t id;
    unsetenv("SENNIT_SECRET");
    if (sennit_get_unique_id_at("127.0.0.1:5000", &id) != SENNIT_REFUSED ||
        !strstr(sennit_last_error(), "set SENNIT_SECRET"))
      return sennit_last_error();
    setenv("SENNIT_SECRET", "words of a test", 1);
    for (const char* const wrong : {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:0", "::1:80",
                                    "127.0.0.1:70000", "127.0.0.1:80x"})
      if (sennit_get_unique_id_at(wrong, &id) != SENNIT_INVALID_ARGUMENT ||
          !strstr(sennit_last_error(), "expected HOST:PORT"))
        return std::string(wrong) + ": " + sennit_last_error();
    if (sennit_get_unique_id_at("[::1]:80", &id) != SENNIT_OK) return sennit_last_error();
    return "ok";
  });
  EXPECT_EQ(one.outcome(kLimit), "ok");
}

}  // namespace
}  // namespace sennit
