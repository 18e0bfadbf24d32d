// man_text.cpp: see trainer/data/man_text.hpp.
#include "trainer/data/man_text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace sennit::trainer {
namespace {

constexpr int kMostLinesOfAHead = 400;  // comments before the first macro

// In a page's own characters, with its tables, without colours and overstrikes. A line is longer
// than any paragraph, nothing is indented, hyphenated or spread to both margins.
constexpr const char* kGroff[] = {"groff",   "-Kutf8", "-t",     "-mandoc", "-Tutf8", "-rLL=9000n",
                                  "-rIN=0n", "-rHY=0", "-dAD=l", "-P-cbu",  nullptr};

// Memory that a process reads or writes as a file: neither side ever waits for the other, as it
// would with a pipe.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("page", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<size_t>(written));
    }
    return ::lseek(descriptor_, 0, SEEK_SET) == 0;
  }
  std::string read() const {
    const off_t size = std::max<off_t>(0, ::lseek(descriptor_, 0, SEEK_END));
    std::string text(static_cast<size_t>(size), '\0');
    const ssize_t got = ::pread(descriptor_, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    return text;
  }

 private:
  int descriptor_;
};

// groff in a process group of its own, since it starts others.
Result<pid_t> start_groff(const MemoryFile& in, const MemoryFile& out) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, kGroff[0], &files, &attributes,
                                   const_cast<char* const*>(kGroff), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT)
    return Status(
        SENNIT_UNSUPPORTED,
        "manual pages are made into text by groff, which is not here: install the package "
        "groff-base, or name other texts");
  if (error != 0)
    return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("groff: {}", std::strerror(error)));
  return process;
}

// False: it did not end in time, and was ended.
bool wait_for(pid_t process, std::chrono::milliseconds limit) {
  bool in_time = true;
  if (const int ends = static_cast<int>(::syscall(SYS_pidfd_open, process, 0)); ends >= 0) {
    pollfd wanted{ends, POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&wanted, 1, static_cast<int>(limit.count()));
    while (ready < 0 && errno == EINTR);
    in_time = ready != 0;
    ::close(ends);
  }
  if (!in_time) ::kill(-process, SIGKILL);
  while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
  return in_time;
}

// The lines without the page's head and foot, which are its name and date, with at most one empty
// line in a row, and with hyphens and minus signs as they are typed.
std::string tidy(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    if (!line.empty() || (!lines.empty() && !lines.back().empty())) lines.push_back(line);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() < 3) return "";
  std::string tidied;
  for (size_t i = lines[1].empty() ? 2 : 1; i + 1 < lines.size(); i++) {
    tidied += lines[i];
    tidied += '\n';
  }
  while (tidied.ends_with("\n\n")) tidied.pop_back();
  for (const std::string_view dash : {"\u2010", "\u2212"})
    for (size_t at = 0; (at = tidied.find(dash, at)) != tidied.npos;)
      tidied.replace(at, dash.size(), "-");
  return tidied;
}

}  // namespace

bool is_man_page(std::string_view text) {
  for (int lines = 0; lines < kMostLinesOfAHead && !text.empty(); lines++) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view start = line.substr(0, 3);
    if (start == ".TH" || start == ".Dd" || start == ".so" || start == ".SH") return true;
    if (!line.empty() && line[0] != '.' && line[0] != '\'') return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

Result<std::string> man_text(std::string_view roff, std::chrono::milliseconds limit) {
  if (roff.starts_with(".so ")) return std::string();
  MemoryFile in, out;
  if (in.descriptor() < 0 || out.descriptor() < 0 || !in.write(roff))
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("no memory for a manual page: {}", std::strerror(errno)));
  const Result<pid_t> groff = start_groff(in, out);
  if (!groff) return groff.status();
  if (!wait_for(*groff, limit))
    return invalid(fmt::format("groff did not end within {} ms", limit.count()));
  return tidy(out.read());
}

}  // namespace sennit::trainer
