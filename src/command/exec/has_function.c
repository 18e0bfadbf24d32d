/* has_function.c: see command/exec/has_function.h. It needs libc only, as bindings.c does. */
#define _GNU_SOURCE
#include "command/exec/has_function.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_within(uint64_t offset, uint64_t size, size_t bytes) {
  return offset <= bytes && size <= bytes - offset;
}

/* What a table of symbols says of the function. `exported` is the table that other files see. */
static int in_table(const char* file, const Elf64_Shdr* table, const Elf64_Shdr* names,
                    size_t bytes, int exported, const char* function) {
  const size_t length = strlen(function) + 1; /* names may end without their zero */
  if (!is_within(table->sh_offset, table->sh_size, bytes) ||
      !is_within(names->sh_offset, names->sh_size, bytes))
    return SENNIT_LACKS;
  const Elf64_Sym* const symbols = (const Elf64_Sym*)(file + table->sh_offset);
  for (size_t i = 0; i < table->sh_size / sizeof *symbols; i++) {
    if (!is_within(symbols[i].st_name, length, names->sh_size)) continue;
    if (memcmp(file + names->sh_offset + symbols[i].st_name, function, length) != 0) continue;
    if (symbols[i].st_shndx == SHN_UNDEF) return SENNIT_CALLS;
    return exported ? SENNIT_EXPORTS : SENNIT_HIDES;
  }
  return SENNIT_LACKS;
}

/* The tables of sections name what the loader never sees as well. A statically linked NCCL whose
 * names were stripped is known by a text that every version of it prints. */
static int in_file(const char* file, size_t bytes, const char* function) {
  static const char kText[] = "NCCL WARN";
  const Elf64_Ehdr* const head = (const Elf64_Ehdr*)file;
  int found = SENNIT_LACKS, named = 0;
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
      !is_within(head->e_shoff, head->e_shnum * sizeof(Elf64_Shdr), bytes))
    return SENNIT_LACKS;
  const Elf64_Shdr* const sections = (const Elf64_Shdr*)(file + head->e_shoff);
  for (int i = 0; i < head->e_shnum && !found; i++) {
    const Elf64_Shdr* const table = &sections[i];
    if ((table->sh_type != SHT_DYNSYM && table->sh_type != SHT_SYMTAB) ||
        table->sh_link >= head->e_shnum)
      continue;
    named |= table->sh_type == SHT_SYMTAB;
    found = in_table(file, table, &sections[table->sh_link], bytes, table->sh_type == SHT_DYNSYM,
                     function);
  }
  if (!found && !named && strncmp(function, "nccl", 4) == 0 &&
      memmem(file, bytes, kText, sizeof kText - 1))
    return SENNIT_HIDES;
  return found;
}

int sennit_has_function(const char* path, const char* function) {
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SENNIT_LACKS;
  struct stat status;
  int found = SENNIT_LACKS;
  if (fstat(descriptor, &status) == 0 && (size_t)status.st_size > sizeof(Elf64_Ehdr)) {
    const size_t bytes = (size_t)status.st_size;
    char* const file = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (file != MAP_FAILED) {
      found = in_file(file, bytes, function);
      munmap(file, bytes);
    }
  }
  close(descriptor);
  return found;
}
