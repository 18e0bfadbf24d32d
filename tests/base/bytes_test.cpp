// bytes_test.cpp: what a ByteWriter wrote a ByteReader gives back, and what is too short, too long
// or out of range is refused without reading past the end or taking memory for it.
//
// ctest not-under-tsan: it has one thread
#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/rank_ranges.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

const std::set<int> kRanks = {0, 1, 2, 4, 9};
const std::vector<std::byte> kBlob = {std::byte{1}, std::byte{2}, std::byte{3}};

std::vector<std::byte> one_of_each() {
  ByteWriter out;
  out.u8(200).u16(0xfedc).u32(0x89abcdef).u64(0xfedcba9876543210).i64(-5).f64(0.1).flag(true);
  out.rank(-1).text("two words").blob(kBlob).ranks(kRanks).status({SENNIT_ABORTED, "why"});
  return out.bytes(kBlob).take();
}

// Reads what one_of_each() wrote; false where the reader is not ok afterwards.
bool read_one_of_each(ByteReader& in) {
  EXPECT_TRUE(in.u8() == 200 || !in.ok());
  EXPECT_TRUE(in.u16() == 0xfedc || !in.ok());
  EXPECT_TRUE(in.u32() == 0x89abcdef || !in.ok());
  EXPECT_TRUE(in.u64() == 0xfedcba9876543210 || !in.ok());
  EXPECT_TRUE(in.i64() == -5 || !in.ok());
  EXPECT_TRUE(in.f64() == 0.1 || !in.ok());
  EXPECT_TRUE(in.flag() || !in.ok());
  EXPECT_TRUE(in.rank() == -1 || !in.ok());
  EXPECT_TRUE(in.text() == "two words" || !in.ok());
  EXPECT_TRUE(std::ranges::equal(in.blob(), kBlob) || !in.ok());
  EXPECT_TRUE(in.ranks(10) == kRanks || !in.ok());
  const Status status = in.status();
  EXPECT_TRUE((status.kind() == SENNIT_ABORTED && status.text() == "why") || !in.ok());
  EXPECT_TRUE(std::ranges::equal(in.rest(), kBlob) || in.left() == 0);
  return in.ok();
}

TEST(Bytes, ComeBackAsTheyWere) {
  const auto bytes = one_of_each();
  ByteReader in(bytes);
  EXPECT_TRUE(read_one_of_each(in));
  EXPECT_TRUE(in.finish("it").ok());
}

TEST(Bytes, AreLittleEndian) {
  const auto bytes = ByteWriter().u32(0x01020304).take();
  EXPECT_EQ(bytes,
            (std::vector<std::byte>{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}}));
}

TEST(Bytes, CutShortAnywhereAreRefused) {
  const auto bytes = one_of_each();
  for (size_t length = 0; length + kBlob.size() < bytes.size(); length++) {
    ByteReader in(std::span<const std::byte>(bytes).first(length));
    EXPECT_FALSE(read_one_of_each(in)) << length;
    EXPECT_EQ(in.finish("it").kind(), SENNIT_INTERNAL);
    EXPECT_EQ(in.u64(), 0u);
  }
}

TEST(Bytes, TooManyAreRefused) {
  const auto bytes = ByteWriter().u32(7).u8(0).take();
  ByteReader in(bytes);
  EXPECT_EQ(in.u32(), 7u);
  EXPECT_EQ(in.finish("a seven").text(), "a seven is malformed: 1 bytes too many");
}

TEST(Bytes, OutOfRangeAreRefused) {
  const auto refused = [](const ByteWriter& writer, auto read) {
    ByteWriter copy = writer;
    const auto bytes = copy.take();
    ByteReader in(bytes);
    read(in);
    return !in.ok();
  };
  EXPECT_TRUE(refused(ByteWriter().u8(2), [](ByteReader& in) { in.flag(); }));
  EXPECT_TRUE(refused(ByteWriter().rank(4), [](ByteReader& in) { in.rank_below(4); }));
  EXPECT_TRUE(refused(ByteWriter().rank(-1), [](ByteReader& in) { in.rank_below(4); }));
  EXPECT_TRUE(refused(ByteWriter().u32(1000).u64(0), [](ByteReader& in) { in.count(8); }));
  EXPECT_TRUE(refused(ByteWriter().u32(0xffffffff).u64(0), [](ByteReader& in) { in.text(); }));
  EXPECT_TRUE(refused(ByteWriter().ranks(kRanks), [](ByteReader& in) { in.ranks(9); }));
  EXPECT_TRUE(refused(ByteWriter().u32(2).rank(3).rank(5).rank(5).rank(6),
                      [](ByteReader& in) { in.ranks(9); }));
  EXPECT_TRUE(refused(ByteWriter().status({}), [](ByteReader& in) { (void)in.status(); }));
  EXPECT_TRUE(refused(ByteWriter().u8(99).text(""), [](ByteReader& in) { (void)in.status(); }));
}

TEST(Bytes, AtRandomDoNoHarm) {
  std::mt19937_64 random(sennit_test::seed());
  for (int trial = 0; trial < 2000; trial++) {
    std::vector<std::byte> noise(random() % 80);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    ByteReader in(noise);
    while (in.ok() && in.left() > 0) {
      switch (random() % 5) {
        case 0:
          in.text();
          break;
        case 1:
          in.ranks(16);
          break;
        case 2:
          (void)in.status();
          break;
        case 3:
          in.count(3);
          break;
        default:
          in.u16();
      }
    }
    EXPECT_EQ(in.left(), 0u);
  }
}

TEST(RankRanges, AreReadByPeople) {
  EXPECT_EQ(format_ranks({}), "");
  EXPECT_EQ(format_ranks(kRanks), "0-2,4,9");
  EXPECT_EQ(name_ranks({4}), "rank 4");
  EXPECT_EQ(name_ranks(kRanks), "ranks 0-2,4,9");
}

}  // namespace
}  // namespace sennit
