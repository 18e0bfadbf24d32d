// program.cpp: a program of MPI's, which knows nothing of sennit: every collective that sennit
// stands in front of, blocking and not, of types and operations, in place, with derived types, on
// communicators that it makes and frees, mixed with messages, and with large counts where MPI has
// functions of such. Exits with 1 where a result is wrong;
// rank 0 prints "ok". With the argument "die" rank 1 dies midway.
#include <mpi.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace {

int rank = 0, size = 1;
const char* g_where = "";

void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "rank %d: %s: %s is wrong\n", rank, g_where, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// An argument as the parameter takes it. Counts and displacements of ints are copied where the
// function takes large ones, for as long as the call is out.
template <typename Parameter>
struct Argument {
  template <typename Given>
  Argument(Given given, int) : value(given) {}
  Parameter value;
};
template <typename T>
concept LargeCount = std::is_same_v<T, MPI_Count> || std::is_same_v<T, MPI_Aint>;
template <LargeCount Large>
struct Argument<const Large*> {
  Argument(const int* given, int n) : copies(given, given + n), value(copies.data()) {}
  Argument(std::nullptr_t, int) : value(nullptr) {}
  std::vector<Large> copies;
  const Large* value;
};

// Which of a collective's functions is called. `mixed`: that with large counts by every other rank,
// in turns.
enum class Counts { ints, large, mixed };

// A collective's functions: blocking, its twin, and both with large counts where MPI has them.
#define ONLY(blocking, twin) MPI_##blocking, MPI_##twin, MPI_##blocking, MPI_##twin
#if MPI_VERSION >= 4
#define ALL(blocking, twin) MPI_##blocking, MPI_##twin, MPI_##blocking##_c, MPI_##twin##_c
const std::vector<Counts> kCounts = {Counts::ints, Counts::large, Counts::mixed};
#else
#define ALL(blocking, twin) ONLY(blocking, twin)
const std::vector<Counts> kCounts = {Counts::ints};
#endif

// Calls collectives of a communicator, blocking or as their twins, waited for at once.
class Calls {
 public:
  Calls(MPI_Comm comm, bool blocks, Counts counts) : blocks_(blocks), counts_(counts) {
    MPI_Comm_size(comm, &size_);
    MPI_Comm_rank(comm, &rank_);
  }
  template <typename Blocking, typename Twin, typename LargeBlocking, typename LargeTwin,
            typename... Arguments>
  void operator()(Blocking blocking, Twin twin, LargeBlocking large_blocking, LargeTwin large_twin,
                  Arguments... arguments) {
    const bool large =
        counts_ == Counts::large || (counts_ == Counts::mixed && (rank_ + calls_++) % 2 != 0);
    if (large)
      make(large_blocking, large_twin, arguments...);
    else
      make(blocking, twin, arguments...);
  }

 private:
  template <typename... Parameters, typename Twin, typename... Arguments>
  void make(int (*blocking)(Parameters...), Twin twin, Arguments... arguments) const {
    std::tuple<Argument<Parameters>...> all{Argument<Parameters>(arguments, size_)...};
    std::apply(
        [&](const auto&... each) {
          if (blocks_) {
            blocking(each.value...);
            return;
          }
          MPI_Request request = MPI_REQUEST_NULL;
          twin(each.value..., &request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
          expect(request == MPI_REQUEST_NULL, "the request after MPI_Wait");
        },
        all);
  }

  const bool blocks_;
  const Counts counts_;
  int size_ = 1, rank_ = 0, calls_ = 0;
};

template <typename T>
void reduce_types(Calls& call, MPI_Comm comm, MPI_Datatype type, const char* name) {
  g_where = name;
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  for (const int count : {0, 1, 17, 5000}) {
    const auto c = static_cast<size_t>(count);
    std::vector<T> in(c), out(c), expected(c);
    for (size_t i = 0; i < c; i++) {
      in[i] = static_cast<T>(self + static_cast<int>(i % 5));
      expected[i] = static_cast<T>(n * (n - 1) / 2 + n * static_cast<int>(i % 5));
    }
    call(ALL(Allreduce, Iallreduce), in.data(), out.data(), count, type, MPI_SUM, comm);
    expect(out == expected, "MPI_Allreduce");
    out = in;
    call(ALL(Allreduce, Iallreduce), MPI_IN_PLACE, out.data(), count, type, MPI_SUM, comm);
    expect(out == expected, "MPI_Allreduce in place");
    call(ALL(Allreduce, Iallreduce), in.data(), out.data(), count, type, MPI_MAX, comm);
    for (size_t i = 0; i < c; i++)
      expect(out[i] == static_cast<T>(n - 1 + static_cast<int>(i % 5)), "MPI_MAX");
    const int root = n - 1;
    std::vector<T> at_root(c);
    call(ALL(Reduce, Ireduce), in.data(), at_root.data(), count, type, MPI_SUM, root, comm);
    expect(self != root || at_root == expected, "MPI_Reduce");
    at_root = in;
    call(ALL(Reduce, Ireduce), self == root ? MPI_IN_PLACE : in.data(),
         self == root ? at_root.data() : nullptr, count, type, MPI_SUM, root, comm);
    expect(self != root || at_root == expected, "MPI_Reduce in place");
  }
}

void bits(Calls& call, MPI_Comm comm) {
  g_where = "bits";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  const uint16_t mine = static_cast<uint16_t>(0x8000u | 1u << self);
  uint16_t all = 0, any = 0, odd = 0, every = 0x8000, expected_odd = 0;
  for (int r = 0; r < n; r++) {
    every = static_cast<uint16_t>(every | 1u << r);
    expected_odd = static_cast<uint16_t>(expected_odd ^ (0x8000u | 1u << r));
  }
  call(ALL(Allreduce, Iallreduce), &mine, &all, 1, MPI_UINT16_T, MPI_BAND, comm);
  call(ALL(Allreduce, Iallreduce), &mine, &any, 1, MPI_UINT16_T, MPI_BOR, comm);
  call(ALL(Allreduce, Iallreduce), &mine, &odd, 1, MPI_UINT16_T, MPI_BXOR, comm);
  expect(n == 1 || all == 0x8000, "MPI_BAND");
  expect(any == every, "MPI_BOR");
  expect(odd == expected_odd, "MPI_BXOR");
}

// What sennit has not goes to MPI, on all ranks alike.
void others(Calls& call, MPI_Comm comm) {
  g_where = "what MPI itself does";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  short number = static_cast<short>(self), sum = 0;
  call(ALL(Allreduce, Iallreduce), &number, &sum, 1, MPI_SHORT, MPI_SUM, comm);
  expect(sum == n * (n - 1) / 2, "a sum of shorts");
  struct Pair {
    double value;
    int place;
  } mine = {static_cast<double>(self * 7 % n), self}, least = {};
  call(ALL(Allreduce, Iallreduce), &mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
  expect(least.value == 0, "MPI_MINLOC");
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(
      [](void* in, void* out, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; i++)
          static_cast<int*>(out)[i] = 10 * static_cast<int*>(out)[i] + static_cast<int*>(in)[i];
      },
      0, &op);
  int digit = self, digits = 0;
  call(ALL(Allreduce, Iallreduce), &digit, &digits, 1, MPI_INT, op, comm);
  expect(n == 1 || digits != 0, "an operation of the user's own");
  MPI_Op_free(&op);
}

void scatter(Calls& call, MPI_Comm comm) {
  g_where = "reduce_scatter";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  std::vector<int> counts(static_cast<size_t>(n));
  int all = 0, before = 0;
  for (int r = 0; r < n; r++) {
    counts[static_cast<size_t>(r)] = r + 1;
    if (r < self) before += r + 1;
    all += r + 1;
  }
  std::vector<double> in(static_cast<size_t>(all)), out(static_cast<size_t>(self + 1));
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<double>(i) + self;
  const auto right = [&](const double* got) {
    for (int i = 0; i <= self; i++)
      expect(got[i] == n * (before + i) + n * (n - 1) / 2.0, "MPI_Reduce_scatter");
  };
  call(ALL(Reduce_scatter, Ireduce_scatter), in.data(), out.data(), counts.data(), MPI_DOUBLE,
       MPI_SUM, comm);
  right(out.data());
  std::vector<double> place = in;
  call(ALL(Reduce_scatter, Ireduce_scatter), MPI_IN_PLACE, place.data(), counts.data(), MPI_DOUBLE,
       MPI_SUM, comm);
  right(place.data());
  std::vector<int> blocks(static_cast<size_t>(3 * n)), block(3);
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = static_cast<int>(i);
  call(ALL(Reduce_scatter_block, Ireduce_scatter_block), blocks.data(), block.data(), 3, MPI_INT,
       MPI_SUM, comm);
  for (int i = 0; i < 3; i++)
    expect(block[static_cast<size_t>(i)] == n * (3 * self + i), "MPI_Reduce_scatter_block");
}

// Every second int, in an order that memory has not: what sends and what receives differ.
MPI_Datatype swapped() {
  int lengths[] = {1, 1}, places[] = {2, 0};
  MPI_Datatype type = MPI_DATATYPE_NULL, resized = MPI_DATATYPE_NULL;
  MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
  MPI_Type_create_resized(type, 0, 4 * sizeof(int), &resized);
  MPI_Type_commit(&resized);
  MPI_Type_free(&type);
  return resized;
}

void moves(Calls& call, MPI_Comm comm) {
  g_where = "moves";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  const auto ranks = static_cast<size_t>(n);
  MPI_Datatype two = swapped();
  for (int root = 0; root < n; root++) {
    // The root has gaps, the others have not.
    int gaps[] = {20, -1, 10, -1, 40, -1, 30, -1}, plain[] = {0, 0, 0, 0};
    if (self == root)
      call(ALL(Bcast, Ibcast), static_cast<void*>(gaps), 2, two, root, comm);
    else
      call(ALL(Bcast, Ibcast), static_cast<void*>(plain), 4, MPI_INT, root, comm);
    const int expected[] = {10, 20, 30, 40};
    expect(self == root || std::memcmp(plain, expected, sizeof plain) == 0, "MPI_Bcast");
  }
  std::vector<int> out(2 * ranks), mine = {2 * self, 2 * self + 1};
  call(ALL(Allgather, Iallgather), mine.data(), 2, MPI_INT, out.data(), 2, MPI_INT, comm);
  for (size_t i = 0; i < out.size(); i++) expect(out[i] == static_cast<int>(i), "MPI_Allgather");
  std::vector<int> sparse(4 * ranks, -1);
  call(ALL(Allgather, Iallgather), mine.data(), 2, MPI_INT, sparse.data(), 1, two, comm);
  for (size_t r = 0; r < ranks; r++)
    expect(sparse[4 * r + 2] == static_cast<int>(2 * r) &&
               sparse[4 * r] == static_cast<int>(2 * r + 1) && sparse[4 * r + 1] == -1,
           "MPI_Allgather into a derived type");
  std::fill(out.begin(), out.end(), -1);
  out[2 * static_cast<size_t>(self)] = 2 * self;
  out[2 * static_cast<size_t>(self) + 1] = 2 * self + 1;
  call(ALL(Allgather, Iallgather), MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out.data(), 2, MPI_INT,
       comm);
  for (size_t i = 0; i < out.size(); i++)
    expect(out[i] == static_cast<int>(i), "MPI_Allgather in place");

  MPI_Type_free(&two);
  call(ONLY(Barrier, Ibarrier), comm);
}

void uneven_gather(Calls& call, MPI_Comm comm) {
  g_where = "all_gather_v";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  const auto ranks = static_cast<size_t>(n);
  std::vector<int> counts(ranks), places(ranks);
  int all = 0;
  for (size_t r = ranks; r-- > 0;) {  // the last rank's lies first
    counts[r] = static_cast<int>(r % 3);
    places[r] = all;
    all += counts[r] + 1;
  }
  std::vector<int> uneven(static_cast<size_t>(all), -1),
      own(counts[static_cast<size_t>(self)], self);
  call(ALL(Allgatherv, Iallgatherv), own.data(), static_cast<int>(own.size()), MPI_INT,
       uneven.data(), counts.data(), places.data(), MPI_INT, comm);
  for (size_t r = 0; r < ranks; r++) {
    for (int i = 0; i < counts[r]; i++)
      expect(uneven[static_cast<size_t>(places[r] + i)] == static_cast<int>(r), "MPI_Allgatherv");
    expect(uneven[static_cast<size_t>(places[r] + counts[r])] == -1, "what lies between");
  }
}

void all_to_all(Calls& call, MPI_Comm comm) {
  g_where = "all_to_all";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  const auto ranks = static_cast<size_t>(n);
  std::vector<double> to(3 * ranks), from(3 * ranks);
  for (size_t i = 0; i < to.size(); i++) to[i] = self * 1000 + static_cast<double>(i);
  call(ALL(Alltoall, Ialltoall), to.data(), 3, MPI_DOUBLE, from.data(), 3, MPI_DOUBLE, comm);
  for (size_t i = 0; i < from.size(); i++)
    expect(from[i] == static_cast<double>(i / 3) * 1000 + 3 * self + static_cast<double>(i % 3),
           "MPI_Alltoall");
  call(ALL(Alltoall, Ialltoall), MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to.data(), 3, MPI_DOUBLE,
       comm);
  expect(to == from, "MPI_Alltoall in place");

  // Rank i sends i + j elements to rank j.
  std::vector<int> sent(ranks), sent_at(ranks), got(ranks), got_at(ranks);
  int sends = 0, gets = 0;
  for (size_t r = 0; r < ranks; r++) {
    sent[r] = got[r] = self + static_cast<int>(r);
    sent_at[r] = sends;
    got_at[r] = gets;
    sends += sent[r];
    gets += got[r];
  }
  std::vector<int> packets(static_cast<size_t>(sends) + 1), arrived(static_cast<size_t>(gets) + 1);
  for (size_t r = 0; r < ranks; r++)
    for (int i = 0; i < sent[r]; i++)
      packets[static_cast<size_t>(sent_at[r] + i)] = self * 100 + static_cast<int>(r);
  call(ALL(Alltoallv, Ialltoallv), packets.data(), sent.data(), sent_at.data(), MPI_INT,
       arrived.data(), got.data(), got_at.data(), MPI_INT, comm);
  for (size_t r = 0; r < ranks; r++)
    for (int i = 0; i < got[r]; i++)
      expect(arrived[static_cast<size_t>(got_at[r] + i)] == static_cast<int>(r) * 100 + self,
             "MPI_Alltoallv");
  call(ALL(Alltoallv, Ialltoallv), MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL,
       packets.data(), got.data(), got_at.data(), MPI_INT, comm);
  expect(packets == arrived, "MPI_Alltoallv in place");
}

// Types whose makers were given large counts: of one that is dense, and of one that is not.
#if MPI_VERSION >= 4
void large_types(MPI_Comm comm) {
  g_where = "types of large counts";
  int self = 0;
  MPI_Comm_rank(comm, &self);
  MPI_Datatype three = MPI_DATATYPE_NULL, second = MPI_DATATYPE_NULL;
  MPI_Type_contiguous_c(3, MPI_INT, &three);
  MPI_Type_vector_c(2, 1, 2, MPI_INT, &second);
  MPI_Type_commit(&three);
  MPI_Type_commit(&second);
  int row[] = {self, self + 1, self + 2}, gaps[] = {self + 1, -1, self + 2};
  MPI_Bcast(row, 1, three, 0, comm);
  MPI_Bcast(gaps, 1, second, 0, comm);
  expect(row[0] == 0 && row[1] == 1 && row[2] == 2, "MPI_Bcast of a row");
  expect(gaps[0] == 1 && gaps[1] == -1 && gaps[2] == 2, "MPI_Bcast of what has gaps");
  MPI_Type_free(&three);
  MPI_Type_free(&second);
}
#else
void large_types(MPI_Comm) {}
#endif

// A message that goes only while MPI makes progress, which this rank does in a collective.
void message_meanwhile(MPI_Comm comm) {
  g_where = "a message meanwhile";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  if (n < 2) return;
  std::vector<int> data(1 << 20, self);
  MPI_Request request = MPI_REQUEST_NULL;
  if (self == 0) MPI_Isend(data.data(), 1 << 20, MPI_INT, 1, 5, comm, &request);
  if (self == 1) MPI_Recv(data.data(), 1 << 20, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE);
  MPI_Barrier(comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(data[12345] == (self == 1 ? 0 : self), "the message");
}

// Until all are complete, by one of the functions that wait.
void wait_by(int how, std::vector<MPI_Request>* all) {
  MPI_Request* const requests = all->data();
  const int n = static_cast<int>(all->size());
  std::vector<MPI_Status> statuses(all->size());
  std::vector<int> places(all->size());
  int flag = 0, which = 0, some = 0;
  switch (how) {
    case 0:
      MPI_Waitall(n, requests, statuses.data());
      break;
    case 1:
      while (!flag) MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
      break;
    case 2:
      for (int i = 0; i < n; i++) {
        MPI_Waitany(n, requests, &which, MPI_STATUS_IGNORE);
        expect(which >= 0 && which < n, "MPI_Waitany's index");
      }
      MPI_Waitany(n, requests, &which, MPI_STATUS_IGNORE);
      expect(which == MPI_UNDEFINED, "MPI_Waitany of nothing");
      break;
    case 3:
      for (int done = 0; done < n; done += flag)
        MPI_Testany(n, requests, &which, &flag, MPI_STATUS_IGNORE);
      break;
    case 4:
      for (int done = 0; done < n; done += some)
        MPI_Waitsome(n, requests, &some, places.data(), MPI_STATUSES_IGNORE);
      break;
    default:
      for (int done = 0; done < n; done += some)
        MPI_Testsome(n, requests, &some, places.data(), MPI_STATUSES_IGNORE);
  }
}

// Collectives and messages in one list of requests, by each function that waits.
void many_requests(MPI_Comm comm) {
  g_where = "many requests";
  int n = 0, self = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &self);
  const int next = (self + 1) % n, before = (self + n - 1) % n;
  for (int how = 0; how < 6; how++) {
    std::vector<MPI_Request> requests(5, MPI_REQUEST_NULL);
    double in = self, sum = 0;
    int sent = self, got = -1, word = self == 0 ? 77 : 0;
    MPI_Iallreduce(&in, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
    MPI_Irecv(&got, 1, MPI_INT, before, how, comm, &requests[1]);
    MPI_Isend(&sent, 1, MPI_INT, next, how, comm, &requests[2]);
    MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &requests[3]);
    MPI_Ibarrier(comm, &requests[4]);
    wait_by(how, &requests);
    for (const MPI_Request& request : requests) expect(request == MPI_REQUEST_NULL, "a request");
    expect(sum == n * (n - 1) / 2.0 && got == before && word == 77, "what came");
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  int flag = 0;
  while (!flag) MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  expect(request != MPI_REQUEST_NULL, "MPI_Request_get_status leaves the request");
  flag = 0;
  while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

void everything(MPI_Comm comm) {
  MPI_Barrier(comm);
  for (const bool blocks : {true, false})
    for (const Counts counts : kCounts) {
      Calls call(comm, blocks, counts);
      reduce_types<int8_t>(call, comm, MPI_INT8_T, "int8");
      reduce_types<int32_t>(call, comm, MPI_INT, "int");
      reduce_types<uint64_t>(call, comm, MPI_UINT64_T, "uint64");
      reduce_types<long>(call, comm, MPI_LONG, "long");
      reduce_types<float>(call, comm, MPI_FLOAT, "float");
      reduce_types<double>(call, comm, MPI_DOUBLE, "double");
      bits(call, comm);
      others(call, comm);
      scatter(call, comm);
      moves(call, comm);
      uneven_gather(call, comm);
      all_to_all(call, comm);
    }
  large_types(comm);
  message_meanwhile(comm);
  many_requests(comm);
}

// Of arguments that are off, which MPI itself tells.
#ifdef OPEN_MPI  // other MPIs may be built without a look at arguments
void errors() {
  const auto expect_error = [](int result, int error, const char* what) {
    g_where = what;
    int class_of = MPI_SUCCESS;
    MPI_Error_class(result, &class_of);
    expect(class_of == error, "the error");
  };
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  // Of some errors Open MPI tells another communicator.
  for (MPI_Comm told : {comm, MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(told, MPI_ERRORS_RETURN);
  int number = 0, sum = 0;
  expect_error(MPI_Reduce_scatter_block(MPI_IN_PLACE, &number, -1, MPI_INT, MPI_SUM, comm),
               MPI_ERR_COUNT, "a count that is none");
  expect_error(MPI_Bcast(&number, 1, MPI_INT, size, comm), MPI_ERR_ROOT, "a root that is none");
  expect_error(MPI_Reduce(&number, &sum, 1, MPI_INT, MPI_SUM, -1, comm), MPI_ERR_ROOT,
               "a root of a reduction that is none");
  expect_error(MPI_Bcast(&number, 1, MPI_DATATYPE_NULL, 0, comm), MPI_ERR_TYPE,
               "a type that is none");
  expect_error(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm), MPI_ERR_ARG, "no place to bcast to");
  expect_error(MPI_Allreduce(&number, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER,
               "no place for a sum");
  expect_error(MPI_Reduce_scatter_block(&number, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm),
               MPI_ERR_ARG, "no place for a part of a sum");
  expect_error(MPI_Alltoall(&number, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm), MPI_ERR_ARG,
               "no place to receive");
  expect_error(MPI_Reduce_scatter(&number, &sum, nullptr, MPI_INT, MPI_SUM, comm), MPI_ERR_COUNT,
               "no counts");
  const std::vector<int> ones(static_cast<size_t>(size), 1);
  expect_error(MPI_Allgatherv(&number, 1, MPI_INT, &sum, ones.data(), nullptr, MPI_INT, comm),
               MPI_ERR_BUFFER, "no displacements");
  if (rank > 0)  // the root would wait
    expect_error(MPI_Reduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, 0, comm), MPI_ERR_ARG,
                 "a reduction in place that is not at the root");
  for (MPI_Comm told : {MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(told, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_free(&comm);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  everything(MPI_COMM_WORLD);
  if (argc > 1 && rank == 1) std::raise(SIGKILL);  // "die": the others wait for it
  for (int i = 0; i < 3; i++) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    everything(part);
    MPI_Comm_free(&part);
  }
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Request request = MPI_REQUEST_NULL;  // before any that blocks: MPI does it
  MPI_Ibarrier(copy, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  everything(copy);
  MPI_Comm_free(&copy);
  everything(MPI_COMM_SELF);
#ifdef OPEN_MPI
  errors();
#endif
  if (size > 1) {
    g_where = "intercommunicator";
    MPI_Comm half = MPI_COMM_NULL, inter = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < size / 2 ? size / 2 : 0, 3, &inter);
    int one = 1, others_sum = 0, there = 0;
    MPI_Comm_remote_size(inter, &there);
    MPI_Allreduce(&one, &others_sum, 1, MPI_INT, MPI_SUM, inter);
    expect(others_sum == there, "MPI_Allreduce");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
  if (rank == 0) std::puts("ok");
  MPI_Finalize();
  return 0;
}
