// registered.hpp: the user's own memory, made readable to peers where it lies.
//
// The whole pages of a range are moved into an arena (transports/shm/arena.hpp) and that piece of
// the arena is mapped at the range's addresses too, so peers need to know nothing new: an offer
// names the arena's addresses. Partial pages at the ends stay as they are, since they hold others'
// data as well; what is offered of them is copied into a spare page before and behind the piece, so
// that an offer is in one piece all the same (a 16 MB all-reduce of 2 ranks takes 1.2 times its
// copies so, 1.8 times where it is not). remove() puts private pages with the same bytes back.
// Memory that was unmapped or replaced meanwhile is noticed, by the kernel's page map before each
// offer and by /proc/self/maps in remove(), and never read or overwritten by mistake. Threads: none
// of its own. Cost: add and remove copy the range; an offer out of it asks the page map twice.
#pragma once

#include <map>
#include <vector>

#include "transports/shm/arena.hpp"

namespace sennit::shm {

// Private pages at `address` with the bytes at `from`, unless something is mapped there. False:
// there is no memory for them. Whole pages.
bool fill_hole(void* address, const std::byte* from, size_t bytes);

// What a rank has registered.
class Registrations {
 public:
  explicit Registrations(Arenas& arenas) : arenas_(arenas) {}
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // SENNIT_UNSUPPORTED where pages of this kind cannot be replaced. After an error nothing has
  // changed.
  Status add(void* memory, size_t bytes);
  // `memory` as given to add(). An error where there is no memory to put back: it stays registered.
  Status remove(void* memory);
  // Removes all, as well as can be.
  void clear();
  // What was registered at `memory` and has pages in an arena, or nothing.
  std::span<const std::byte> range(const void* memory) const;
  // Appends the addresses at which peers find a segment: itself, or its pieces in arenas.
  void locate(const Segment& segment, std::vector<RemoteSegment>* result);

 private:
  struct Pages {
    void* memory;     // as registered
    size_t bytes;     // as registered
    uintptr_t begin;  // the whole pages in it
    uintptr_t end;
    Arena* arena;
    // the same pages in the arena's own mapping, with a spare page on either side
    std::byte* inside;
    bool told;  // that they are no longer what they were
  };
  using Entry = std::map<uintptr_t, Pages>::iterator;
  void release(Entry place);
  Status put_back(const Pages& pages);
  bool still_ours(uintptr_t begin, uintptr_t end);

  Arenas& arenas_;
  std::map<uintptr_t, Pages> pages_;  // by address, never overlapping
  int page_map_ = -1;                 // /proc/self/pagemap
};

}  // namespace sennit::shm
