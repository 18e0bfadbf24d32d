// judge_thread.cpp: see watch/judge_thread.hpp.
#include "watch/judge_thread.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <iterator>
#include <utility>

namespace sennit::watch {
namespace {

// What comes while the judge cannot keep up is lost, as each digest makes up for the last.
constexpr size_t kMostTold = 1 << 16;

}  // namespace

JudgeThread::JudgeThread(const std::string& fabric, std::vector<Placement> placements)
    : judge_(fabric, std::move(placements)), thread_([this] { run(); }) {}

JudgeThread::~JudgeThread() {
  if (origin_.forked()) {  // the thread is the parent's
    thread_.detach();
    return;
  }
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void JudgeThread::give(std::vector<Told> told) {
  const MutexLock lock(mutex_);
  if (told_.size() + told.size() > kMostTold) return;
  std::move(told.begin(), told.end(), std::back_inserter(told_));
  wake_.notify_all();
}

std::vector<LiveVerdict> JudgeThread::take() {
  const MutexLock lock(mutex_);
  has_found_ = false;
  return std::exchange(found_, {});
}

void JudgeThread::run() {
  prctl(PR_SET_NAME, kName);
  // On Linux that is the niceness of this thread alone, and may always grow.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNicer);
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (told_.empty()) {
      wake_.wait(lock);
      continue;
    }
    std::vector<Told> told = std::exchange(told_, {});
    lock.unlock();
    const uint64_t now_ns = told.back().at_ns;
    for (Told& one : told) {
      if (const Note* const note = std::get_if<Note>(&one.what))
        judge_.note(one.rank, *note);
      else
        judge_.digest(one.rank, std::get<Digest>(std::move(one.what)), one.at_ns);
    }
    std::vector<LiveVerdict> found = judge_.look(now_ns);
    lock.lock();
    std::move(found.begin(), found.end(), std::back_inserter(found_));
    has_found_ = !found_.empty();
  }
}

}  // namespace sennit::watch
