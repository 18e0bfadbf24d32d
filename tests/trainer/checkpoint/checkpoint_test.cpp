// checkpoint_test.cpp: what one mesh saved, any other loads, bit for bit; which checkpoints
// stay; and what damage of every kind leads to.
#include <gtest/gtest.h>

#include <barrier>
#include <fstream>
#include <set>

#include <fmt/core.h>

#include "tests/trainer/checkpoint/cases.hpp"
#include "trainer/checkpoint/keep.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<GlobalTensor> random_tensors(std::mt19937* random) {
  std::vector<GlobalTensor> tensors;
  const int count = 1 + static_cast<int>((*random)() % 5);
  for (int i = 0; i < count; i++) {
    GlobalTensor tensor{
        "tensor." + std::to_string(i), (*random)() % 2 ? Type::f32 : Type::bf16, {}};
    for (unsigned d = (*random)() % 4; d > 0; d--)
      tensor.shape.push_back(1 + static_cast<int64_t>((*random)() % 9));
    tensors.push_back(tensor);
  }
  return tensors;
}

// Cuts a box in two along some dimension, again and again.
void cut(const Box& box, int times, std::mt19937* random, std::vector<Box>* parts) {
  const size_t d = box.extent.empty() ? 0 : (*random)() % box.extent.size();
  if (times == 0 || box.extent.empty() || box.extent[d] < 2) {
    parts->push_back(box);
    return;
  }
  const int64_t at =
      1 + static_cast<int64_t>((*random)() % static_cast<uint64_t>(box.extent[d] - 1));
  Box low = box, high = box;
  low.extent[d] = at;
  high.offset[d] += at;
  high.extent[d] -= at;
  cut(low, times - 1, random, parts);
  cut(high, times - 1, random, parts);
}

// A mesh's pieces by rank: boxes dealt out at random, some of them to several ranks at once.
std::vector<std::vector<OwnedPiece>> random_mesh(const std::vector<GlobalTensor>& tensors,
                                                 std::mt19937* random) {
  std::vector<std::vector<OwnedPiece>> ranks(1 + (*random)() % 6);
  for (const GlobalTensor& tensor : tensors) {
    std::vector<Box> parts;
    cut(whole_box(tensor.shape), static_cast<int>((*random)() % 4), random, &parts);
    for (const Box& part : parts) {
      const size_t first = (*random)() % ranks.size(), replicas = 1 + (*random)() % ranks.size();
      for (size_t replica = 0; replica < replicas; replica++) {
        OwnedPiece owned = own(tensor, part, random);
        owned.piece.replica = static_cast<int>(replica);
        owned.piece.replicas = static_cast<int>(replicas);
        ranks[(first + replica) % ranks.size()].push_back(owned);
      }
    }
  }
  return ranks;
}

TEST(TrainerCheckpoint, AnyMeshLoadsWhatAnyOtherSaved) {
  for (unsigned seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const TestFolder folder;
    const std::vector<GlobalTensor> tensors = random_tensors(&random);
    const auto find = [&](const std::string& name) -> const GlobalTensor& {
      return *std::find_if(tensors.begin(), tensors.end(),
                           [&](const auto& one) { return one.name == name; });
    };
    std::vector<std::vector<TensorPiece>> saved;
    const auto mesh = random_mesh(tensors, &random);
    for (const auto& rank : mesh) {
      saved.push_back(pieces_of(rank));
      for (const TensorPiece& piece : saved.back()) fill(find(piece.name), piece, seed);
    }
    for (const auto& answer : save_all(folder.path(), seed, 1.5, saved))
      ASSERT_TRUE(answer.ok()) << answer.status().text();
    const auto checkpoint = Checkpoint::open(folder / step_folder_name(seed));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    EXPECT_EQ(checkpoint->state()["step"], seed);
    EXPECT_EQ(checkpoint->held_out_loss(), 1.5);
    for (const auto& rank : random_mesh(tensors, &random)) {
      const std::vector<TensorPiece> pieces = pieces_of(rank);
      const Status status = checkpoint->load(pieces);
      ASSERT_TRUE(status.ok()) << status.text();
      for (const TensorPiece& piece : pieces)
        EXPECT_EQ(wrong_elements(find(piece.name), piece, seed), 0) << piece.name;
    }
    expect_whole(*checkpoint, tensors);
    // Every byte once: the files hold the tensors and their headers, nothing more.
    uint64_t expected = 0, there = 0;
    for (const GlobalTensor& tensor : tensors)
      expected += static_cast<uint64_t>(elements_of(tensor.shape)) * bytes_of(tensor.type);
    for (const std::string& name : names_in(folder / step_folder_name(seed))) {
      if (name == kManifestName) continue;
      const auto file = MappedFile::open(folder / step_folder_name(seed) + "/" + name);
      const auto header = parse_safetensors({file->data(), file->bytes()}, file->bytes(), name);
      ASSERT_TRUE(header.ok()) << header.status().text();
      there += file->bytes() - header->data_at;
    }
    EXPECT_EQ(there, expected);
    EXPECT_EQ(names_in(folder.path()).size(), 1u);  // nothing hidden is left
  }
}

TEST(TrainerCheckpoint, RangesOfABoxBecomeAFewBoxes) {
  std::mt19937 random(9);
  for (int round = 0; round < 500; round++) {
    Sizes shape, offset, extent;
    for (unsigned d = random() % 4; d > 0; d--) {
      extent.push_back(1 + random() % 6);
      offset.push_back(random() % 4);
      shape.push_back(offset.back() + extent.back() + random() % 3);
    }
    const TensorPiece box{
        .name = "t", .shape = shape, .offset = offset, .extent = extent, .stride = {}};
    const int64_t elements = Box{offset, extent}.elements();
    const int64_t first = random() % elements, count = random() % (elements - first + 1);
    std::vector<float> memory(static_cast<size_t>(count), -1);
    const auto pieces = pieces_of_range(box, first, count, memory.data());
    EXPECT_LE(pieces.size(), std::max<size_t>(1, 2 * shape.size() - (shape.empty() ? 0 : 1)));
    // Each element of the memory is the next of the box in row-major order.
    std::vector<int64_t> order, found;
    TensorPiece whole = box;
    std::vector<float> all(static_cast<size_t>(elements));
    whole.data = all.data();
    each_element(whole, [&](char*, int64_t index) { order.push_back(index); });
    for (const TensorPiece& piece : pieces)
      each_element(piece, [&](char* place, int64_t index) {
        EXPECT_EQ(place, reinterpret_cast<char*>(memory.data() + found.size()));
        found.push_back(index);
      });
    EXPECT_EQ(found, std::vector<int64_t>(order.begin() + first, order.begin() + first + count));
  }
}

TEST(TrainerCheckpoint, BoxesThatDoNotTileAreRefused) {
  EXPECT_FALSE(tiling_fault(
      {4, 4}, {{{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}, {{2, 2}, {2, 2}}, {{0, 0}, {0, 4}}}));
  EXPECT_EQ(*tiling_fault({4, 4}, {{{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}}),
            "12 of 16 elements are there");
  EXPECT_EQ(*tiling_fault({4, 4}, {{{0, 0}, {3, 4}}, {{2, 0}, {2, 2}}}),
            "[0:3, 0:4] and [2:4, 0:2] overlap");
  EXPECT_FALSE(tiling_fault({}, {{{}, {}}}));
  EXPECT_EQ(*tiling_fault({}, {}), "0 of 1 elements are there");
  EXPECT_FALSE(tiling_fault({0, 5}, {}));
  const TestFolder folder;
  const GlobalTensor tensor{"weight", Type::f32, {8, 3}};
  const OwnedPiece part = own(tensor, {{0, 0}, {4, 3}}, nullptr),
                   other = own(tensor, {{3, 0}, {4, 3}}, nullptr);
  const auto answers = save_all(folder.path(), 1, {}, {{part.piece}, {other.piece}});
  EXPECT_EQ(answers[0].status().text(),
            "checkpoint of step 1: tensor 'weight': the ranks' boxes do not make it up: [0:4, 0:3] "
            "and [3:7, 0:3] "
            "overlap");
  EXPECT_TRUE(names_in(folder.path()).empty());
  OwnedPiece off = part;
  off.piece.extent[0] = 9;
  EXPECT_EQ(save_all(folder.path(), 1, {}, {{off.piece}})[0].status().text(),
            "checkpoint: weight: the box [0:9, 0:3] reaches out of [8, 3]");
  EXPECT_EQ(save_all(folder.path(), 1, {}, {{part.piece, part.piece}})[0].status().text(),
            "checkpoint: weight[0:4, 0:3] is there twice");
}

const std::vector<GlobalTensor> kTensors = {
    {"model.embed_tokens.weight", Type::f32, {16, 8}},
    {"model.norm.weight", Type::f32, {8}},
    {"optimizer.first_moment.model.norm.weight", Type::f32, {8}},
    {"half", Type::bf16, {5, 3}}};

void save_one(const std::string& folder, int64_t step, std::optional<double> loss,
              CheckpointOptions options = {}) {
  const auto owned = own_all(kTensors, step);
  const auto answers = save_all(folder, step, loss, {pieces_of(owned)}, options);
  ASSERT_TRUE(answers[0].ok()) << answers[0].status().text();
}

TEST(TrainerCheckpoint, KeepsTheLastAndTheBest) {
  const TestFolder folder;
  const auto left = [&] {
    std::string steps;
    for (const std::string& name : names_in(folder.path()))
      steps += std::to_string(*step_of(name)) + " ";
    return steps;
  };
  const double losses[] = {5, 3, 4, 4.5, NAN, 3.5, 2.5, 6, 7, 8};
  const char* expected[] = {"0 ",     "0 1 ", "1 2 ", "1 2 3 ", "1 3 4 ",
                            "1 4 5 ", "5 6 ", "6 7 ", "6 7 8 ", "6 8 9 "};
  for (int step = 0; step < 10; step++) {
    const auto owned = own_all(kTensors, step);
    const auto answers =
        save_all(folder.path(), step, losses[step], {pieces_of(owned)}, {.keep_last = 2});
    ASSERT_TRUE(answers[0].ok()) << answers[0].status().text();
    EXPECT_EQ((*answers[0])->best, step == 0 || step == 1 || step == 6);
    EXPECT_EQ(left(), expected[step]) << "step " << step;
  }
  save_one(folder.path(), 3, {}, {.keep_last = 1, .keep_best = false});
  EXPECT_EQ(left(), "3 9 ");  // the one just saved stays
  save_one(folder.path(), 3, 1.0, {.keep_last = 0});
  EXPECT_EQ(left(), "3 9 ");  // replaced
  const auto checkpoint = Checkpoint::open(folder / "step-00000003");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  EXPECT_EQ(checkpoint->held_out_loss(), 1.0);
  expect_whole(*checkpoint, kTensors);
}

TEST(TrainerCheckpoint, SavesGoOnBehindTheRunsBack) {
  const TestFolder folder;
  auto writer = CheckpointWriter::open({.folder = folder.path(), .attempt = "a", .keep_last = 0});
  ASSERT_TRUE(writer.ok());
  EXPECT_FALSE((*writer)->wait()->has_value());
  auto owned = own_all(kTensors, 0);
  ASSERT_TRUE((*writer)->prepare(pieces_of(owned)).ok());
  for (int64_t step = 1; step <= 5; step++) {  // the memory changes as soon as save() is back
    for (size_t i = 0; i < owned.size(); i++) fill(kTensors[i], owned[i].piece, step);
    ASSERT_TRUE((*writer)->save(step, {}, {}, "{}", "", pieces_of(owned)).ok());
    for (const OwnedPiece& one : owned) std::fill(one.memory->begin(), one.memory->end(), '\0');
  }
  const auto report = (*writer)->wait();
  ASSERT_TRUE(report.ok() && report->has_value());
  EXPECT_EQ((*report)->step, 5);
  EXPECT_FALSE((*writer)->busy());
  for (int64_t step = 1; step <= 5; step++) {
    const auto checkpoint = Checkpoint::open(folder / step_folder_name(step));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    expect_whole(*checkpoint, kTensors);
  }
}

// Whoever waits ends the pauses: this one would go on for hours.
TEST(TrainerCheckpoint, AWriterThatTakesItsTimeIsDoneWhenSomeoneWaits) {
  const TestFolder folder;
  const std::vector<GlobalTensor> tensors = {{"a", Type::f32, {1 << 20}},
                                             {"b", Type::bf16, {300, 1000}}};
  auto writer = CheckpointWriter::open({.folder = folder.path(), .attempt = "a", .keep_last = 0});
  ASSERT_TRUE(writer.ok());
  (*writer)->spread_writing(1e5);
  for (int64_t step = 1; step <= 2; step++) {
    const auto owned = own_all(tensors, step);
    // waits for the one before
    ASSERT_TRUE((*writer)->save(step, {}, {}, "{}", "", pieces_of(owned)).ok());
  }
  const auto report = (*writer)->wait();
  ASSERT_TRUE(report.ok() && report->has_value());
  for (int64_t step = 1; step <= 2; step++) {
    const auto checkpoint = Checkpoint::open(folder / step_folder_name(step));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    expect_whole(*checkpoint, tensors);
  }
}

TEST(TrainerCheckpoint, NobodyWaitsForARankThatNeverComes) {
  const TestFolder folder;
  const auto owned = own_all(kTensors, 1);
  CheckpointOptions options{
      .folder = folder.path(), .ranks = 2, .attempt = "a", .patience_s = 0.05};
  auto writer = CheckpointWriter::open(options);
  ASSERT_TRUE(writer.ok() && (*writer)->save(1, {}, {}, "{}", "", pieces_of(owned)).ok());
  EXPECT_NE((*writer)->wait().status().text().find("rank 1 wrote nothing into "),
            std::string::npos);
  options.patience_s = 1e9;
  writer = CheckpointWriter::open(options);
  ASSERT_TRUE(writer.ok() && (*writer)->save(2, {}, {}, "{}", "", pieces_of(owned)).ok());
  writer->reset();  // the run ends: at once
  options.run_status = [] { return Status(SENNIT_PEER_FAILED, "rank 1 died"); };
  writer = CheckpointWriter::open(options);
  ASSERT_TRUE(writer.ok() && (*writer)->save(3, {}, {}, "{}", "", pieces_of(owned)).ok());
  EXPECT_EQ((*writer)->wait().status().text(), "checkpoint of step 3: rank 1 died");
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(TrainerCheckpoint, OthersMayTakeAsLongAsWritingIsSpreadOver) {
  const TestFolder folder;
  const GlobalTensor tensor{"weight", Type::f32, {8, 3}};
  const OwnedPiece low = own(tensor, {{0, 0}, {4, 3}}, nullptr),
                   high = own(tensor, {{4, 0}, {4, 3}}, nullptr);
  CheckpointOptions options{.folder = folder.path(), .ranks = 2, .attempt = "a", .patience_s = 0};
  const auto first = CheckpointWriter::open(options);
  options.rank = 1;
  const auto second = CheckpointWriter::open(options);
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->spread_writing(3600);
  ASSERT_TRUE((*first)->save(1, {}, {}, "{}", "", {&low.piece, 1}).ok());
  while ((*first)->busy() && !fs::exists(folder / ".step-00000001.a.0/rank-00000.json"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leaves the writer its core
  ASSERT_TRUE((*second)->save(1, {}, {}, "{}", "", {&high.piece, 1}).ok());
  EXPECT_TRUE((*second)->wait().ok());
  const auto report = (*first)->wait();
  EXPECT_TRUE(report.ok()) << report.status().text();
  EXPECT_TRUE(Checkpoint::open(folder / "step-00000001").ok());
}

// Rank 0 does not wait long for a rank whose disk is too full to say why it failed.
TEST(TrainerCheckpoint, AnEmptyNoteOfFailureEndsTheWait) {
  const TestFolder folder;
  const auto owned = own_all(kTensors, 1);
  const std::string hidden = folder / ".step-00000001.test.0";
  fs::create_directories(hidden);
  std::ofstream(hidden + "/rank-00001.safetensors") << "x";
  fs::create_symlink("/dev/full", hidden + "/rank-00001.failed.part");  // no room for words
  const auto answers = save_all(folder.path(), 1, {}, {pieces_of(owned), {}});
  EXPECT_NE(answers[0].status().text().find("rank 1: cannot write its part, nor why"),
            std::string::npos)
      << answers[0].status().text();
}

TEST(TrainerCheckpoint, OneRankThatFailsFailsTheSave) {
  const TestFolder folder;
  const auto owned = own_all(kTensors, 1);
  // Rank 1 finds its file there already: something else wrote it.
  fs::create_directories(folder / ".step-00000001.test.0");
  std::ofstream(folder / ".step-00000001.test.0/rank-00001.safetensors") << "x";
  const auto answers = save_all(folder.path(), 1, {}, {pieces_of(owned), {}});
  EXPECT_NE(answers[0].status().text().find("checkpoint of step 1: rank 1: "), std::string::npos)
      << answers[0].status().text();
  EXPECT_NE(answers[1].status().text().find("rank-00001.safetensors: cannot be made: File exists"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "step-00000001"));
  // The caller's agreement is asked on every rank, and its answer counts.
  std::atomic<int> asked{0};
  CheckpointOptions options;
  options.attempt = "again";
  std::barrier all(2);
  options.agree = [&](const Status& mine) {
    asked++;
    all.arrive_and_wait();
    return mine.ok() ? invalid("another rank said no") : mine;
  };
  for (const auto& answer : save_all(folder.path(), 1, {}, {pieces_of(owned), {}}, options))
    EXPECT_EQ(answer.status().text(), "checkpoint of step 1: another rank said no");
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(fs::exists(folder / "step-00000001"));
}

TEST(TrainerCheckpoint, DamageIsFoundAndNamed) {
  const TestFolder folder, copies;
  save_one(folder.path(), 7, {});
  const std::string good = folder / "step-00000007", bad = copies / "step-00000007";
  const std::string file = bad + "/rank-00000.safetensors", manifest = bad + "/manifest.json";
  const auto error = [&](const std::function<void()>& damage) -> std::string {
    fs::remove_all(bad);
    fs::copy(good, bad);
    damage();
    const auto checkpoint = Checkpoint::open(bad);
    if (!checkpoint.ok()) return checkpoint.status().text();
    std::string found;
    checkpoint->verify([&](const std::string& what) { found += what; });
    // Loading everything says so, too.
    Status status;
    for (const OwnedPiece& owned : own_all(kTensors, 0))
      if (status.ok()) status = checkpoint->load({&owned.piece, 1});
    EXPECT_EQ(status.ok(), found.empty());
    return found;
  };
  EXPECT_EQ(error([] {}), "");
  EXPECT_EQ(error([&] { fs::remove(manifest); }),
            manifest + ": cannot be read: No such file or directory");
  EXPECT_EQ(error([&] { fs::remove(file); }), file + ": cannot be read: No such file or directory");
  const auto size = static_cast<int64_t>(fs::file_size(good + "/rank-00000.safetensors"));
  EXPECT_EQ(error([&] { fs::resize_file(file, static_cast<uintmax_t>(size - 5)); }),
            fmt::format("{}: {} bytes long; the manifest says {}: it is cut short", file, size - 5,
                        size));
  EXPECT_EQ(error([&] { fs::resize_file(file, 0); }),
            fmt::format("{}: 0 bytes long; the manifest says {}: it is cut short", file, size));
  EXPECT_EQ(error([&] { change_byte(file, size - 1, 1); }),
            file + ": tensor 'half' [0:5, 0:3] is damaged: its checksum is not the manifest's");
  EXPECT_NE(error([&] { change_byte(file, 0, 1); }).find(file), std::string::npos);
  EXPECT_EQ(error([&] { fs::resize_file(manifest, 100); }),
            manifest + ": is no JSON object; it is cut short or damaged");
  // Every byte of both files, one at a time. Padding and white space may change; nothing else.
  int64_t unnoticed = 0;
  for (const std::string& name : {file, manifest}) {
    error([] {});
    const std::string text = *read_file(name);
    for (size_t at = 0; at < text.size(); at++) {
      const bool blank = text[at] == ' ' || text[at] == '\n';
      const bool noticed = !error([&] { change_byte(name, static_cast<int64_t>(at), 1); }).empty();
      unnoticed += !noticed && !blank;
    }
  }
  EXPECT_EQ(unnoticed, 0);
  // A rank's file of another checkpoint, of the same form, sealed as it is.
  save_one(folder.path(), 8, {});
  EXPECT_NE(error([&] {
              fs::copy_file(folder / "step-00000008/rank-00000.safetensors", file,
                            fs::copy_options::overwrite_existing);
            }).find("is damaged: its checksum is not the manifest's"),
            std::string::npos);
}

TEST(TrainerCheckpoint, WhatDoesNotFitIsNamed) {
  const TestFolder folder;
  save_one(folder.path(), 2, {});
  const auto checkpoint = Checkpoint::open(folder / "step-00000002/");
  ASSERT_TRUE(checkpoint.ok());
  const std::string where = folder / "step-00000002";
  const auto error = [&](const GlobalTensor& tensor) {
    const OwnedPiece owned = own(tensor, whole_box(tensor.shape), nullptr);
    return checkpoint->load({&owned.piece, 1}).text();
  };
  EXPECT_EQ(error({"lm_head.weight", Type::f32, {2}}), where + ": has no tensor 'lm_head.weight'");
  EXPECT_EQ(error({"model.norm.weight", Type::f32, {9}}),
            where + ": tensor 'model.norm.weight' is [8] of F32; this run's is [9] of F32");
  EXPECT_EQ(error({"half", Type::f32, {5, 3}}),
            where + ": tensor 'half' is [5, 3] of BF16; this run's is [5, 3] of F32");
}

TEST(TrainerCheckpoint, TheNewestThatOpensIsFound) {
  const TestFolder folder;
  EXPECT_FALSE(newest_checkpoint(folder / "none")->has_value());
  EXPECT_FALSE(newest_checkpoint(folder.path())->has_value());
  for (const int64_t step : {9, 10, 100}) save_one(folder.path(), step, {}, {.keep_last = 0});
  EXPECT_EQ(**newest_checkpoint(folder.path()), folder / "step-00000100");
  fs::resize_file(folder / "step-00000100/manifest.json", 10);
  fs::create_directories(folder / "step-abc");
  fs::create_directories(folder / ".step-00000200.killed.0");
  EXPECT_EQ(**newest_checkpoint(folder.path()), folder / "step-00000010");
}

// A run that took it for an empty one would begin anew, and its progress would be lost.
TEST(TrainerCheckpoint, AFolderThatCannotBeListedIsNoEmptyOne) {
  const TestFolder folder;
  const std::string loop = folder / "loop";
  fs::create_symlink("loop", loop);
  const auto newest = newest_checkpoint(loop);
  ASSERT_FALSE(newest.ok());
  EXPECT_EQ(newest.status().kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_NE(newest.status().text().find(loop + ": cannot be listed"), std::string::npos)
      << newest.status().text();
  EXPECT_FALSE(set_aside_after(loop, 0).ok());
}

}  // namespace
}  // namespace sennit::trainer
