// background_judge.cpp: see watch/background_judge.hpp.
#include "watch/background_judge.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sennit::watch {
namespace {

// While so many looks wait, what ranks tell again and again is dropped: each digest makes up for
// the last. What they tell once is kept.
constexpr int kMostWaiting = 16;

}  // namespace

void BackgroundJudge::give(std::vector<Told> told) {
  if (waiting_ >= kMostWaiting)
    std::erase_if(told, [](const Told& one) { return std::holds_alternative<Digest>(one.what); });
  if (told.empty()) return;
  waiting_++;
  background_.post([this, told = std::move(told)] { look(told); });
}

void BackgroundJudge::look(const std::vector<Told>& told) {
  waiting_--;
  for (const Told& one : told) {
    if (const Note* const note = std::get_if<Note>(&one.what))
      judge_->note(one.rank, *note);
    else
      judge_->digest(one.rank, std::get<Digest>(one.what), one.at_ns);
  }
  std::vector<LiveVerdict> found = judge_->look(told.back().at_ns);
  const MutexLock lock(mutex_);
  std::move(found.begin(), found.end(), std::back_inserter(found_));
  has_found_ = !found_.empty();
}

std::vector<LiveVerdict> BackgroundJudge::take() {
  const MutexLock lock(mutex_);
  has_found_ = false;
  return std::exchange(found_, {});
}

std::vector<LiveVerdict> BackgroundJudge::end() {
  background_.end();
  return take();
}

}  // namespace sennit::watch
