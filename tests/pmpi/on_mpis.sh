#!/bin/sh
# on_mpis.sh BUILD FOLDER...: runs tests/pmpi/program.cpp on other MPIs, each a folder with include/, lib/ and
# bin/mpiexec such as its wheel makes, alone and under `sennit exec --mpi`. Fails where one of them does, or where no
# collective went through sennit. ./run mpi installs MPICH and Open MPI from the Python index and calls this.
set -eu
build=$1
shift
here=$(dirname "$0")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
for mpi in "$@"; do
  program=$build/pmpi_program_$(basename "$mpi")
  g++ -std=c++20 -O1 -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -I"$mpi/include" "$here/program.cpp" -o "$program" \
    -L"$mpi/lib" -lmpi -Wl,-rpath,"$mpi/lib"
  [ "$("$mpi/bin/mpiexec" -n 3 "$program")" = ok ] || { echo "$mpi: the program fails without sennit"; exit 1; }
  said=$("$build/bin/sennit" exec --mpi -v -- "$mpi/bin/mpiexec" -n 3 "$program" 2>&1) || { echo "$said"; exit 1; }
  count=$(echo "$said" | grep -c 'collectives by sennit: [1-9]' || true)
  [ "$count" = 3 ] || { echo "$said"; echo "$mpi: $count of 3 ranks went through sennit"; exit 1; }
  echo "$("$mpi/bin/mpiexec" --version | head -1): $(echo "$said" | grep -m 1 -o 'collectives by sennit.*')"
done
