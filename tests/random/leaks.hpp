// leaks.hpp: what of this process the library may leave behind: descriptors, mappings of shared
// memory, threads. A process looks before its first job and after its last; both must be the same.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

namespace random_programs {

// The names in a folder, in no order, but for those that begin with a dot; with_targets: where its
// links lead, but for this look's own. None where the folder cannot be read.
inline std::vector<std::string> entries_of(const std::string& folder, bool with_targets) {
  std::vector<std::string> names;
  DIR* const open = opendir(folder.c_str());
  while (const dirent* entry = open ? readdir(open) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    std::string name = entry->d_name;
    char target[256];
    const ssize_t bytes =
        with_targets ? readlink((folder + "/" + name).c_str(), target, sizeof target) : -1;
    if (bytes > 0) name = std::string(target, static_cast<size_t>(bytes));
    // the look itself
    if (bytes > 0 && name == "/proc/" + std::to_string(getpid()) + "/fd") continue;
    names.push_back(name);
  }
  if (open) closedir(open);
  return names;
}

// What this process held when look() was called: where its descriptors lead (of sockets and pipes
// the kind alone), its mappings of shared memory by name, and how many threads it had.
struct Holdings {
  std::vector<std::string> descriptors, maps;
  size_t threads = 0;

  static Holdings look() {
    Holdings h;
    // By kind: numbers of sockets and pipes differ, and another one in its place is as good.
    for (std::string& target : entries_of("/proc/self/fd", true))
      h.descriptors.push_back(target.substr(0, target.find('[')));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("/memfd:") != line.npos || line.find("/dev/shm/") != line.npos)
        h.maps.push_back(line.substr(line.find('/')));
    h.threads = entries_of("/proc/self/task", false).size();
    std::sort(h.descriptors.begin(), h.descriptors.end());
    std::sort(h.maps.begin(), h.maps.end());
    return h;
  }

  // What `now` has that this had not; empty: nothing.
  std::string more_in(const Holdings& now) const {
    std::vector<std::string> more;
    std::set_difference(now.descriptors.begin(), now.descriptors.end(), descriptors.begin(),
                        descriptors.end(), std::back_inserter(more));
    std::set_difference(now.maps.begin(), now.maps.end(), maps.begin(), maps.end(),
                        std::back_inserter(more));
    std::string text;
    for (const std::string& one : more) text += (text.empty() ? "" : ", ") + one;
    if (now.threads > threads)
      text += (text.empty() ? "" : ", ") + std::to_string(now.threads - threads) + " threads";
    return text;
  }
};

}  // namespace random_programs
