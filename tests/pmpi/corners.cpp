// corners.cpp: a program of MPI's, which knows nothing of sennit: what MPI allows and few programs
// do. Its argument says what:
//
//   freed        communicators and types end while a call is out
//   blocked      a rank sits in a function which is MPI's alone while others wait for its collective
//   progress     ranks that wait in a collective are needed: for a message, and for their memory
//   threads      communicators of different roots, each by a thread of its own
//   fortran      types by Fortran's names
//   types        with an attribute of the program's, and not committed
//   nonblocking  the first call of all does not block
//   grids        communicators without a collective of all processes
//   errors       of calls that do not block, told once, by their own communicator's handler
//   handler      of an error of MPI's own, which waits for a collective
//   spawned      a communicator of processes of two worlds: three, and two that they start
//   large        more bytes than an int counts; takes 5 GB
//   counts       functions with large counts, where the MPI has them
//   sessions     one after the other after MPI_Finalize, where the MPI has them
//
// Exits with 1 where a result is wrong; rank 0 prints "ok".
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

int rank = 0, size = 1;

void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Every second int of two.
MPI_Datatype spread() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 1, 2, MPI_INT, &type);
  MPI_Type_commit(&type);
  return type;
}

// MPI completes what is out on a communicator, or with a type, which has been freed.
void freed() {
  for (int i = 0; i < 20; i++) {
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    std::vector<double> in(100000, rank), out(in.size());
    MPI_Datatype type = spread();
    int numbers[] = {-1, -1, -1, -1};
    if (rank == 0) numbers[0] = numbers[2] = i;
    MPI_Request requests[2];
    MPI_Iallreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_DOUBLE, MPI_SUM, copy,
                   &requests[0]);
    MPI_Ibcast(numbers, 1, type, 0, copy, &requests[1]);
    MPI_Comm_free(&copy);
    MPI_Type_free(&type);
    // What comes next may get the handles and the memory of what went.
    std::vector<std::vector<char>> dust;
    for (size_t bytes = 16; bytes < 256; bytes += 8)
      for (int n = 0; n < 4; n++) dust.emplace_back(bytes, '\x7f');
    MPI_Datatype other = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(3, MPI_BYTE, &other);
    MPI_Type_commit(&other);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&other);
    expect(out[99999] == size * (size - 1) / 2.0, "MPI_Iallreduce on a freed communicator");
    expect(numbers[0] == i && numbers[1] == -1 && numbers[2] == i,
           "MPI_Ibcast of a type that was freed");
  }
}

// Rank 1 sends only after the collective, in which rank 0 takes part from within MPI_Recv.
void blocked() {
  MPI_Barrier(MPI_COMM_WORLD);
  const int count = 1 << 18;
  std::vector<int> in(count, 1), out(count);
  for (int i = 0; i < 10; i++) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    int word = i;
    if (rank == 0) MPI_Recv(&word, 1, MPI_INT, 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(&word, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
    expect(out[count - 1] == size, "MPI_Iallreduce");
  }
}

// Rank 0 waits in the collective with a message of its own to itself, while rank 1 asks for what
// only rank 0's MPI can do: give access to its memory, and send on.
void progress() {
  int* counter = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD,
                   static_cast<void*>(&counter), &window);
  *counter = 0;
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  const int count = 1 << 20;
  std::vector<int> data(count, rank == 0 ? 7 : 0);
  int word = 0, before = -1;
  const int one = 1;
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Isend(&one, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
  if (rank == 0) MPI_Isend(data.data(), count, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[1]);
  if (rank == 1) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    MPI_Recv(data.data(), count, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  expect(data[count - 1] == (rank <= 1 ? 7 : 0), "a message of a rank that waits");
  expect(before == (rank == 1 ? 0 : -1), "what was in the memory of a rank that waits");
  MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Win_free(&window);
}

// Each rank is the first of one communicator, and each communicator is a thread's.
void threads() {
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < 15; round++) {
    std::vector<MPI_Comm> rings(static_cast<size_t>(size));
    for (int first = 0; first < size; first++)
      MPI_Comm_split(MPI_COMM_WORLD, 0, (rank - first + size) % size,
                     &rings[static_cast<size_t>(first)]);
    std::vector<std::thread> all;
    for (int first = 0; first < size; first++)
      all.emplace_back([&, first] {
        MPI_Comm ring = rings[static_cast<size_t>(first)];
        int word = first == rank ? 10 * round + first : -1, sum = 0;
        MPI_Bcast(&word, 1, MPI_INT, 0, ring);
        expect(word == 10 * round + first, "MPI_Bcast in a thread");
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, ring);
        expect(sum == size * (size - 1) / 2, "MPI_Allreduce in a thread");
      });
    for (std::thread& thread : all) thread.join();
    for (MPI_Comm& ring : rings) MPI_Comm_free(&ring);
  }
}

template <typename T>
void sum_of(MPI_Datatype type, const char* name) {
  const T mine = static_cast<T>(rank + 1);
  std::vector<T> in(7, mine), out(7);
  MPI_Allreduce(in.data(), out.data(), 7, type, MPI_SUM, MPI_COMM_WORLD);
  expect(out[6] == static_cast<T>(size * (size + 1) / 2), name);
}

// The names that BLACS and others use from C. All of these have sennit's types behind them.
void fortran() {
  sum_of<int>(MPI_INTEGER, "MPI_INTEGER");
  sum_of<float>(MPI_REAL, "MPI_REAL");
  sum_of<double>(MPI_DOUBLE_PRECISION, "MPI_DOUBLE_PRECISION");
  sum_of<std::complex<float>>(MPI_COMPLEX, "MPI_COMPLEX");
  sum_of<std::complex<double>>(MPI_DOUBLE_COMPLEX, "MPI_DOUBLE_COMPLEX");
  sum_of<int32_t>(MPI_INTEGER4, "MPI_INTEGER4");
  sum_of<int64_t>(MPI_INTEGER8, "MPI_INTEGER8");
  sum_of<double>(MPI_REAL8, "MPI_REAL8");
  sum_of<std::complex<double>>(MPI_COMPLEX16, "MPI_COMPLEX16");
  sum_of<std::complex<float>>(MPI_C_COMPLEX, "MPI_C_COMPLEX");
  // Predefined as well, and not to be freed: again and again, whoever counts them.
  MPI_Datatype doubles = MPI_DATATYPE_NULL;
  MPI_Type_create_f90_real(15, 307, &doubles);
  for (int i = 0; i < 10; i++) {
    MPI_Datatype three = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(3, doubles, &three);
    MPI_Type_commit(&three);
    double numbers[] = {rank == 0 ? 1.5 : 0, 0, rank == 0 ? 2.5 : 0};
    MPI_Bcast(numbers, 1, three, 0, MPI_COMM_WORLD);
    expect(numbers[0] == 1.5 && numbers[2] == 2.5, "MPI_Bcast of MPI_Type_create_f90_real");
    MPI_Type_free(&three);
  }
}

int g_copied = 0;
int count_copied(MPI_Datatype, int, void*, void*, void*, int* flag) {
  g_copied++;
  *flag = 0;
  return MPI_SUCCESS;
}

// No function of the program's is called that copies an attribute. Where a type that nobody has
// committed is an error, it is told to the communicator of the call.
void types() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Type_create_keyval(count_copied, MPI_TYPE_NULL_DELETE_FN, &keyval, nullptr);
  MPI_Datatype type = spread(), raw = MPI_DATATYPE_NULL;
  MPI_Type_set_attr(type, keyval, &keyval);
  MPI_Type_vector(2, 1, 2, MPI_INT, &raw);
  for (MPI_Datatype each : {type, raw}) {
    int numbers[] = {rank == 0 ? 3 : 0, 0, rank == 0 ? 4 : 0};
    const int result = MPI_Bcast(numbers, 1, each, 0, comm);
    expect(result == MPI_SUCCESS ? numbers[0] == 3 && numbers[2] == 4 : each == raw, "MPI_Bcast");
  }
  expect(g_copied == 0, "the number of copies of an attribute");
  MPI_Type_free(&raw);
  MPI_Type_free(&type);
  MPI_Type_free_keyval(&keyval);
  MPI_Comm_free(&comm);
}

void nonblocking() {
  MPI_Request request = MPI_REQUEST_NULL;
  int sum = 0;
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(sum == size * (size - 1) / 2, "MPI_Iallreduce");
}

// Communicators are cheap: they share the connections of all processes.
void grids() {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  std::vector<MPI_Comm> grids(30);
  for (MPI_Comm& grid : grids) {
    MPI_Comm_dup(MPI_COMM_WORLD, &grid);
    MPI_Barrier(grid);
  }
  expect(descriptors() - before < 30, "the number of descriptors");
  for (MPI_Comm& grid : grids) MPI_Comm_free(&grid);
}

int g_told = 0;
MPI_Request g_aside = MPI_REQUEST_NULL;
// Waits for another call, as a handler may.
void count_error(MPI_Comm*, int*, ...) {
  g_told++;
  MPI_Wait(&g_aside, MPI_STATUS_IGNORE);
}

// A call that fails on every rank, as they disagree about its size, on a communicator of its own.
struct Failing {
  Failing() {
    static MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (handler == MPI_ERRHANDLER_NULL) MPI_Comm_create_errhandler(count_error, &handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Barrier(comm);
    MPI_Iallreduce(&rank, &aside, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &g_aside);
    MPI_Barrier(MPI_COMM_WORLD);  // all have left that one
    g_told = 0;
    begun = MPI_Iallreduce(MPI_IN_PLACE, memory, rank == 0 ? 2 : 1, MPI_INT, MPI_SUM, comm,
                           &request) == MPI_SUCCESS;
  }
  // The result of the function that completed it. Who began late was told then.
  void expect_error(int result, int error, const char* what) {
    int class_of = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &class_of);
    expect(class_of == (begun ? error : MPI_SUCCESS) && g_told == 1, what);
    expect(aside == size * (size - 1) / 2, "what an error handler waited for");
    MPI_Comm_free(&comm);
  }
  int memory[2] = {1, 1}, aside = 0;
  bool begun = false;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
};

// The handler of all processes' communicator ends the program where it is told of one.
void errors() {
  Failing of_wait;
  for (int i = 0; i < 20; i++) {
    usleep(5000);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  expect(g_told == (of_wait.begun ? 0 : 1), "an error that is told before it is waited for");
  of_wait.expect_error(MPI_Wait(&of_wait.request, MPI_STATUS_IGNORE), MPI_ERR_OTHER, "MPI_Wait");

  Failing of_all;
  int sum = 0;
  MPI_Request requests[2] = {of_all.request, MPI_REQUEST_NULL};
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
  MPI_Status statuses[2];
  of_all.expect_error(MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS, "MPI_Waitall");
  if (of_all.begun)
    expect(statuses[0].MPI_ERROR == MPI_ERR_OTHER && statuses[1].MPI_ERROR == MPI_SUCCESS,
           "the errors in the statuses");
  expect(sum == size * (size - 1) / 2, "the call beside the one that failed");

  Failing of_any;
  int which = 0, done = 0, result = MPI_SUCCESS;
  while (!done) result = MPI_Testany(1, &of_any.request, &which, &done, MPI_STATUS_IGNORE);
  of_any.expect_error(result, MPI_ERR_OTHER, "MPI_Testany");
}

// Of a message that is longer than its receive. Rank 0 comes to the collective last.
void handler() {
  MPI_Errhandler counting = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(count_error, &counting);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, counting);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Request request = MPI_REQUEST_NULL;
  int word = 0, sum = 0;
  const int words[] = {1, 2};
  MPI_Irecv(&word, 1, MPI_INT, (rank + size - 1) % size, 0, comm, &request);
  MPI_Send(words, 2, MPI_INT, (rank + 1) % size, 0, comm);
  if (rank == 0) usleep(100000);
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &g_aside);
  const int result = MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(result != MPI_SUCCESS && g_told == 1, "a message that is too long");
  expect(sum == size * (size - 1) / 2, "what an error handler of MPI's own error waited for");
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  MPI_Comm_free(&comm);
  MPI_Errhandler_free(&counting);
}

std::string g_program;

void spawned() {
  MPI_Comm others = MPI_COMM_NULL, everyone = MPI_COMM_NULL;
  MPI_Comm_get_parent(&others);
  const bool child = others != MPI_COMM_NULL;
  char argument[] = "spawned";
  char* arguments[] = {argument, nullptr};
  if (!child)
    MPI_Comm_spawn(g_program.c_str(), arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
                   MPI_ERRCODES_IGNORE);
  MPI_Intercomm_merge(others, child ? 1 : 0, &everyone);
  int all = 0, one = 1, sum = 0;
  MPI_Comm_size(everyone, &all);
  for (int i = 0; i < 100; i++) {
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, everyone);
    expect(sum == all, "MPI_Allreduce of two worlds");
  }
  MPI_Comm_free(&everyone);
  MPI_Comm_disconnect(&others);
}

// So many bytes of addresses on a memory of one page's worth.
std::byte* aliased(size_t bytes) {
  const size_t piece = size_t{1} << 20;
  const int file = memfd_create("aliased", 0);
  expect(file >= 0 && ftruncate(file, static_cast<off_t>(piece)) == 0, "memfd_create");
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (size_t at = 0; at < bytes; at += piece)
    expect(mmap(memory + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
               MAP_FAILED,
           "mmap");
  close(file);
  return memory;
}

// MPI_Alltoall sends more bytes than an int counts, of a type that is packed.
void large() {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_BYTE, 0, 0, &type);  // all elements lie at one place
  MPI_Type_commit(&type);
  const int count = INT32_MAX / size + 4096;
  std::byte mine{static_cast<unsigned char>(rank + 1)};
  const size_t piece = size_t{1} << 20;
  std::byte* const arrived =
      aliased((static_cast<size_t>(count) * static_cast<size_t>(size) / piece + 1) * piece);
  MPI_Alltoall(&mine, count, type, arrived, count, MPI_BYTE, MPI_COMM_WORLD);
  // What comes to a page's place last stays: which rank's that is, nobody says.
  const int last = std::to_integer<int>(arrived[0]);
  expect(last >= 1 && last <= size, "MPI_Alltoall of many bytes");
  MPI_Type_free(&type);
  // One element that is longer than that.
  const int half = 1 << 30;
  const MPI_Aint begins[] = {0, MPI_Aint{half} + static_cast<MPI_Aint>(piece)};
  const int halves[] = {half, half};
  const MPI_Datatype bytes[] = {MPI_BYTE, MPI_BYTE};
  MPI_Type_create_struct(2, halves, begins, bytes, &type);
  MPI_Type_commit(&type);
  std::byte* const one = aliased(2 * static_cast<size_t>(half) + 2 * piece);
  one[5] = rank == 0 ? std::byte{9} : std::byte{0};
  MPI_Bcast(one, 1, type, 0, MPI_COMM_WORLD);
  expect(one[5] == std::byte{9}, "MPI_Bcast of a long element");
  MPI_Type_free(&type);
}

// By every other rank, and then with counts beyond an int, which are MPI's own on a communicator
// whose first call does not block.
#if MPI_VERSION >= 4
void counts() {
  MPI_Barrier(MPI_COMM_WORLD);
  int sum = 0;
  if (rank % 2 == 0)
    MPI_Allreduce_c(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  else
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(sum == size * (size - 1) / 2, "MPI_Allreduce by some and MPI_Allreduce_c by others");
  const MPI_Count count = MPI_Count{INT32_MAX} + 4096;
  const size_t piece = size_t{1} << 20;
  std::byte* const memory = aliased((static_cast<size_t>(count) / piece + 1) * piece);
  if (rank == 0) memory[1] = std::byte{1};
  MPI_Bcast_c(memory, count, MPI_BYTE, 0, MPI_COMM_WORLD);
  expect(memory[1] == std::byte{1}, "MPI_Bcast_c of many bytes");
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  if (rank == 0) memory[1] = std::byte{2};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast_c(memory, count, MPI_BYTE, 0, copy, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(memory[1] == std::byte{2}, "MPI_Ibcast_c of many bytes");
  MPI_Comm_free(&copy);
}

int g_attributes_deleted = 0;
int count_deleted(MPI_Comm, int, void*, void*) {
  g_attributes_deleted++;
  return MPI_SUCCESS;
}

// The program's attribute may have the number that another session gave to one of sennit's.
void in_session() {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_create_from_group(group, "corners", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  int keyval = MPI_KEYVAL_INVALID, self = 0, all = 0, sum = 0, is_set = 0;
  void* attribute = nullptr;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count_deleted, &keyval, nullptr);
  MPI_Comm_set_attr(comm, keyval, &session);
  g_attributes_deleted = 0;
  MPI_Comm_rank(comm, &self);
  MPI_Comm_size(comm, &all);
  for (int i = 0; i < 2; i++) MPI_Allreduce(&self, &sum, 1, MPI_INT, MPI_SUM, comm);
  expect(sum == all * (all - 1) / 2, "MPI_Allreduce in a session");
  MPI_Comm_get_attr(comm, keyval, &attribute, &is_set);
  expect(is_set != 0 && attribute == &session && g_attributes_deleted == 0,
         "an attribute in a session");
  MPI_Comm_free_keyval(&keyval);
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
  MPI_Session_finalize(&session);
}
#endif

// Some leave a communicator to MPI_Finalize.
void sessions() {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Barrier(copy);
}

void afterwards(const std::string& what) {
#if MPI_VERSION >= 4
  for (int i = 0; i < 2 && what == "sessions"; i++) in_session();
#else
  (void)what;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::function<void()>> all = {{"freed", freed},
                                                      {"blocked", blocked},
                                                      {"threads", threads},
                                                      {"progress", progress},
                                                      {"types", types},
                                                      {"fortran", fortran},
                                                      {"nonblocking", nonblocking},
                                                      {"grids", grids},
                                                      {"errors", errors},
                                                      {"handler", handler},
                                                      {"spawned", spawned},
                                                      {"large", large},
                                                      {"sessions", sessions}};
#if MPI_VERSION >= 4
  all["counts"] = counts;
#endif
  const std::string what = argc > 1 ? argv[1] : "";
  if (!all.count(what)) return 2;
  g_program = argv[0];
  // In Open MPI it is then the sender that goes on with a message, as it is between two hosts.
  if (what == "progress") setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (what != "threads" || provided == MPI_THREAD_MULTIPLE) all.at(what)();
  if (rank == 0) std::puts("ok");
  MPI_Finalize();
  afterwards(what);
  return 0;
}
