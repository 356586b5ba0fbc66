#include "patch.h"

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { SLOT = R_X86_64_JUMP_SLOT, DATA = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { SLOT = R_AARCH64_JUMP_SLOT, DATA = R_AARCH64_GLOB_DAT };
#else
#error "which relocations are calls is known for x86-64 and aarch64"
#endif

struct work {
  const struct patch *patches;
  size_t count;
  const void *library, *own; /* addresses in the library and in this object */
  int copies; /* of the library, by name */
};

/* An object's tables; addresses that the loader has relocated, or not. */
struct object {
  uintptr_t base, relro, relro_end;
  const ElfW(Sym) *symbols;
  const char *strings;
  const ElfW(Rela) *calls, *data;
  size_t calls_bytes, data_bytes;
};

static const void *placed(uintptr_t base, uintptr_t value) {
  return (const void *)(value < base ? base + value : value);
}

static struct object read_object(const struct dl_phdr_info *info) {
  struct object object = {.base = info->dlpi_addr};
  const ElfW(Dyn) *dynamic = NULL;
  for (int at = 0; at < info->dlpi_phnum; at++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[at];
    if (part->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(object.base + part->p_vaddr);
    if (part->p_type == PT_GNU_RELRO) {
      object.relro = object.base + part->p_vaddr;
      object.relro_end = object.relro + part->p_memsz;
    }
  }
  for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
    const void *at = placed(object.base, dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_SYMTAB: object.symbols = at; break;
      case DT_STRTAB: object.strings = at; break;
      case DT_JMPREL: object.calls = at; break;
      case DT_RELA: object.data = at; break;
      case DT_PLTRELSZ: object.calls_bytes = dynamic->d_un.d_val; break;
      case DT_RELASZ: object.data_bytes = dynamic->d_un.d_val; break;
      default: break;
    }
  }
  return object;
}

/* A page that the loader has sealed is opened for the moment of the write; others are writable. */
static void write_slot(const struct object *object, void *_Atomic *slot, void *value) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)slot & ~(page - 1);
  bool sealed = (uintptr_t)slot >= (object->relro & ~(page - 1)) && (uintptr_t)slot < (object->relro_end & ~(page - 1));
  if (sealed && mprotect((void *)start, page, PROT_READ | PROT_WRITE) != 0) return;
  atomic_store(slot, value);
  if (sealed) mprotect((void *)start, page, PROT_READ);
}

static void patch_entries(const struct work *work, const struct object *object, const ElfW(Rela) *entries,
                          size_t bytes) {
  for (size_t at = 0; at < bytes / sizeof *entries; at++) {
    uint32_t type = (uint32_t)ELF64_R_TYPE(entries[at].r_info);
    if (type != SLOT && type != DATA) continue;
    const char *name = object->strings + object->symbols[ELF64_R_SYM(entries[at].r_info)].st_name;
    if (strncmp(name, "cupti", 5) != 0) continue;
    for (size_t which = 0; which < work->count; which++) {
      const struct patch *patch = &work->patches[which];
      if (strcmp(name, patch->name) != 0) continue;
      void *real;
      memcpy(&real, patch->real, sizeof real);
      void *_Atomic *slot = (void *_Atomic *)(object->base + entries[at].r_offset);
      void *now = atomic_load(slot);
      if (!real || now == patch->replacement || (work->copies > 1 && now != real)) continue;
      write_slot(object, slot, patch->replacement);
    }
  }
}

static int count_copies(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  ((struct work *)context)->copies += info->dlpi_name && strstr(info->dlpi_name, "libcupti.so") != NULL;
  return 0;
}

static bool holds(const struct dl_phdr_info *info, const void *address) {
  for (int at = 0; at < info->dlpi_phnum; at++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[at];
    uintptr_t start = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && (uintptr_t)address - start < part->p_memsz) return true;
  }
  return false;
}

static int patch_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  const struct work *work = context;
  if (holds(info, work->library) || holds(info, work->own)) return 0;
  struct object object = read_object(info);
  if (!object.symbols || !object.strings) return 0;
  if (object.calls) patch_entries(work, &object, object.calls, object.calls_bytes);
  if (object.data) patch_entries(work, &object, object.data, object.data_bytes);
  return 0;
}

void patch_all(const struct patch *patches, size_t count, const void *library) {
  struct work work = {.patches = patches, .count = count, .library = library, .own = (const void *)patch_all};
  dl_iterate_phdr(count_copies, &work);
  dl_iterate_phdr(patch_object, &work);
}

static int first_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  *(uint64_t *)context = info->dlpi_adds;
  return 1;
}

uint64_t patch_loaded(void) {
  uint64_t loaded = 0;
  dl_iterate_phdr(first_object, &loaded);
  return loaded;
}
