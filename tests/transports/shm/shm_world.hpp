// shm_world.hpp: for the tests of the shm transport: some ranks in one process, messages whose
// content can be recognised, and what lies in /dev/shm.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "base/clock.hpp"
#include "transports/shm/shm.hpp"

namespace sennit::shm {

// Of a job that nobody else on this machine has, so that its names are its own.
inline uint64_t random_job() {
  static std::mt19937_64 random(std::random_device{}());
  return random();
}

// Of a rank whose settings are the defaults; all are on one host.
inline TransportContext context(int rank, int size, uint64_t job) {
  TransportContext result;
  result.rank = rank;
  result.size = size;
  result.job = job;
  result.local_ranks = size;
  return result;
}

// What lies in /dev/shm of this job.
inline std::vector<std::string> names_of(uint64_t job) {
  std::vector<std::string> result;
  char prefix[32];
  snprintf(prefix, sizeof prefix, "sennit-%016llx", static_cast<unsigned long long>(job));
  DIR* folder = opendir("/dev/shm");
  while (const dirent* entry = readdir(folder))
    if (std::string_view(entry->d_name).starts_with(prefix)) result.push_back(entry->d_name);
  closedir(folder);
  return result;
}

// Some ranks in this process, each with its transport; they are driven in turn.
struct World {
  explicit World(int size, uint64_t job_number = random_job()) : job(job_number) {
    for (int rank = 0; rank < size; rank++) {
      Result<std::unique_ptr<Transport>> made = ShmTransport::make(context(rank, size, job));
      EXPECT_TRUE(made.ok()) << made.status().text();
      ranks.push_back(std::move(*made));
    }
    for (int rank = 0; rank < size; rank++)
      for (int peer = 0; peer < size; peer++) {
        if (peer == rank) continue;
        EXPECT_EQ(ranks[rank]->reach(peer, ranks[peer]->address()), Reach::same_host);
        EXPECT_TRUE(ranks[rank]->add_peer(peer, ranks[peer]->address()).ok());
      }
    done.resize(static_cast<size_t>(size));
  }
  ShmTransport& operator[](size_t rank) { return static_cast<ShmTransport&>(*ranks[rank]); }
  bool step() {
    bool moved = false;
    for (size_t rank = 0; rank < ranks.size(); rank++) moved |= ranks[rank]->progress(done[rank]);
    return moved;
  }
  // Drives until `finished`, at most 20 s.
  bool run(const std::function<bool()>& finished) {
    const uint64_t end = now_ns() + 20'000'000'000;
    while (!finished()) {
      if (!step() && now_ns() > end) return false;
    }
    return true;
  }
  uint64_t job;
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<Completions> done;
};

// A message's memory, its own or what it is lent, in one segment or several. fill() writes bytes
// that tell one seed from another, which holds() looks for.
struct Buffer {
  explicit Buffer(size_t bytes, std::byte* memory = nullptr) : own(memory ? 0 : bytes) {
    segment = {memory ? memory : own.data(), bytes};
    segments.push_back(segment);
  }
  void split(std::mt19937_64& random) {  // into up to 5 segments, some of them empty
    segments.clear();
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
      const size_t bytes = random() % (segment.bytes - at + 1);
      segments.push_back({segment.data + at, bytes});
      at += bytes;
    }
    segments.push_back({segment.data + at, segment.bytes - at});
  }
  void fill(uint64_t seed) {
    for (size_t i = 0; i < segment.bytes; i++)
      segment.data[i] = static_cast<std::byte>(seed * 31 + i * 7 + i / 251);
  }
  bool holds(uint64_t seed, const std::byte* data = nullptr) const {
    if (!data) data = segment.data;
    for (size_t i = 0; i < segment.bytes; i++)
      if (data[i] != static_cast<std::byte>(seed * 31 + i * 7 + i / 251)) return false;
    return true;
  }
  std::vector<std::byte> own;
  Segment segment;
  std::vector<Segment> segments;
};

// Makes a request of all of a buffer, which must outlive it.
template <typename Request>
void set(Request& request, int peer, Key key, const Buffer& buffer, uint64_t signature = 1) {
  request.peer = peer;
  request.key = key;
  request.signature = signature;
  request.segments = buffer.segments;
  request.bytes = buffer.segment.bytes;
}

// Both ends of one message and their memory.
struct Message {
  SendRequest send;
  RecvRequest recv;
  std::unique_ptr<Buffer> from, to;
};

}  // namespace sennit::shm
