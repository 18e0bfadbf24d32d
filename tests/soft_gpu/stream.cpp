// stream.cpp: see stream.hpp.
#include "tests/soft_gpu/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

namespace soft_gpu {
namespace {

constexpr uint64_t kMostDelay = 300;  // microseconds

// The queue of the next stream, or null where each has its own. Never destroyed, as all that
// threads of streams use.
HardwareQueue* hardware_queue(uint64_t index) {
  static std::vector<HardwareQueue*>& queues = *[] {
    const char* const given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    auto* const made = new std::vector<HardwareQueue*>;
    for (int i = 0; given != nullptr && i < std::atoi(given); i++)
      made->push_back(new HardwareQueue);
    return made;
  }();
  return queues.empty() ? nullptr : queues[index % queues.size()];
}

}  // namespace

bool Point::passed() const { return stream == nullptr || stream->reached(count); }
void Point::wait() const {
  if (stream != nullptr) stream->wait(count);
}

StreamThread::StreamThread(Gpu* its_gpu, bool is_blocking, uint64_t index)
    : gpu(its_gpu), blocking(is_blocking), hardware_(hardware_queue(index)), dice_(index) {}

std::shared_ptr<StreamThread> StreamThread::start(Gpu* gpu, bool blocking) {
  static std::atomic<uint64_t> streams{0};
  auto made = std::make_shared<StreamThread>(gpu, blocking, streams.fetch_add(1));
  // Nobody can join it: a kernel may wait for good when the process ends.
  std::thread([made] { made->run(); }).detach();
  return made;
}

Point StreamThread::push(std::vector<Point> after, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({std::move(after), std::move(work)});
  if (hardware_ != nullptr) {
    const std::lock_guard hardware_lock(hardware_->mutex);
    operations_.back().place = hardware_->put++;
  }
  changed_.notify_all();
  return {shared_from_this(), ++pushed_};
}

Point StreamThread::end() {
  const std::lock_guard lock(mutex_);
  return {shared_from_this(), pushed_};
}

bool StreamThread::reached(uint64_t count) {
  const std::lock_guard lock(mutex_);
  return finished_ >= count;
}

void StreamThread::wait(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= count; });
}

void StreamThread::hold(bool held) {
  const std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void StreamThread::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool StreamThread::has_ended() {
  const std::lock_guard lock(mutex_);
  return closed_ && finished_ == pushed_;
}

bool StreamThread::take(Operation* operation) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !operations_.empty(); });
  if (operations_.empty()) return false;
  *operation = std::move(operations_.front());
  operations_.pop_front();
  return true;
}

void StreamThread::wait_to_start(const Operation& operation) {
  for (const Point& point : operation.after) point.wait();
  if (dice_.below(2) == 0) dice_.sleep_below(kMostDelay);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_; });
  }
  if (hardware_ == nullptr) return;
  std::unique_lock lock(hardware_->mutex);
  hardware_->changed.wait(lock, [&] { return hardware_->started == operation.place; });
  hardware_->started++;
  hardware_->changed.notify_all();
}

// A broken device does nothing any more, so that whoever waits for a stream hears of it.
void StreamThread::run() {
  while (true) {
    Operation operation;
    if (!take(&operation)) return;
    wait_to_start(operation);
    if (!broken() && operation.work) operation.work();
    operation = {};
    const std::lock_guard lock(mutex_);
    finished_++;
    changed_.notify_all();
  }
}

std::shared_ptr<StreamThread> Gpu::add_stream(bool blocking) {
  const std::lock_guard guard(mutex);
  std::erase_if(streams, [](const auto& stream) { return stream->has_ended(); });
  return streams.emplace_back(StreamThread::start(this, blocking));
}

std::shared_ptr<StreamThread> Gpu::legacy_stream() {
  const std::lock_guard guard(mutex);
  if (legacy == nullptr) {
    legacy = StreamThread::start(this, true);
    streams.push_back(legacy);
  }
  return legacy;
}

Point Gpu::push(StreamThread& stream, std::function<void()> work, std::vector<Point> after) {
  {
    const std::lock_guard guard(mutex);
    for (const Point& point : after)
      if (stream.capture == nullptr) stream.capture = point.capture;
  }
  if (const std::shared_ptr<Capture> capture = capture_of(stream)) {
    const std::lock_guard guard(captures_mutex());
    std::set<size_t>& before = capture->before[&stream];
    for (const Point& point : after)
      if (point.capture == capture) before.insert(point.before.begin(), point.before.end());
    if (work) {
      before.insert(capture->graph->operations.size());
      capture->graph->operations.push_back(std::move(work));
    }
    return {nullptr, 0, capture, before};
  }
  for (Point& point : ends(stream))
    if (point.stream.get() != &stream && !point.passed()) after.push_back(std::move(point));
  return stream.push(std::move(after), std::move(work));
}

std::shared_ptr<Capture> Gpu::capture_of(const StreamThread& stream) {
  const std::lock_guard guard(mutex);
  return stream.capture;
}

bool Gpu::captures_blocking() {
  const std::lock_guard guard(mutex);
  return std::any_of(streams.begin(), streams.end(), [](const auto& stream) {
    return stream->blocking && stream->capture != nullptr;
  });
}

bool Gpu::invalidate_captures_of_blocking() {
  const std::lock_guard guard(mutex);
  const std::lock_guard captures_guard(captures_mutex());
  bool any = false;
  for (const auto& stream : streams) {
    if (!stream->blocking || stream->capture == nullptr) continue;
    stream->capture->invalid = true;
    any = true;
  }
  return any;
}

void Gpu::end_capture(const Capture& capture) {
  const std::lock_guard guard(mutex);
  for (const auto& stream : streams)
    if (stream->capture.get() == &capture) stream->capture = nullptr;
}

std::vector<Point> Gpu::ends(StreamThread& stream) {
  const std::lock_guard guard(mutex);
  std::vector<Point> all{stream.end()};
  if (!stream.blocking || legacy == nullptr) return all;
  if (&stream != legacy.get()) {
    all.push_back(legacy->end());
    return all;
  }
  for (const auto& other : streams)
    if (other != legacy && other->blocking) all.push_back(other->end());
  return all;
}

void Gpu::drain() {
  std::vector<Point> all;
  {
    const std::lock_guard guard(mutex);
    for (const auto& stream : streams) all.push_back(stream->end());
  }
  for (const Point& point : all) point.wait();
}

}  // namespace soft_gpu
