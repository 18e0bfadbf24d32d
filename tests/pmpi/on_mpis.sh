#!/bin/sh
# on_mpis.sh BUILD FOLDER...: runs tests/pmpi/program.cpp and corners.cpp on other MPIs, each a folder with include/,
# lib/ and bin/mpiexec such as its wheel makes, alone and under `sennit exec --mpi`; where the MPI has the standard's own
# binary interface, built for that as well. Fails where one of them does, or where no collective went through
# sennit. ./run mpi installs MPICH and Open MPI from the Python index and calls this.
set -eu
build=$1
shift
here=$(dirname "$0")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# A program under sennit, on so many ranks: prints what the ranks counted.
on_sennit() { # RANKS PROGRAM [ARGUMENT]
  ranks=$1
  shift
  said=$(timeout 120 "$build/bin/sennit" exec --mpi -v -- "$mpi/bin/mpiexec" -n "$ranks" "$@" 2>&1) || {
    echo "$said"
    echo "$*: fails on sennit"
    exit 1
  }
  count=$(echo "$said" | grep -c 'collectives by sennit: [1-9]' || true)
  [ "$count" = "$ranks" ] || { echo "$said"; echo "$*: $count of $ranks ranks went through sennit"; exit 1; }
  echo "$said" | grep -m 1 -o 'collectives by sennit.*'
}

on_one() { # NAME LIBRARY OPTION...: of the folder $mpi
  name=$1 library=$2
  shift 2
  for program in program corners; do
    g++ -std=c++20 -O1 -pthread -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "$@" -I"$mpi/include" "$here/$program.cpp" \
      -o "$build/pmpi_${program}_$name" -L"$mpi/lib" -l"$library" -Wl,-rpath,"$mpi/lib"
  done
  [ "$("$mpi/bin/mpiexec" -n 3 "$build/pmpi_program_$name")" = ok ] || {
    echo "$name: the program fails without sennit"
    exit 1
  }
  echo "$name: $(on_sennit 3 "$build/pmpi_program_$name")"
  for corner in freed blocked progress threads fortran types nonblocking grids errors; do
    echo "$name: $corner: $(on_sennit 3 "$build/pmpi_corners_$name" $corner)"
  done
  if grep -q MPI_Allreduce_c "$mpi"/include/*.h; then # three by sennit, of which one has either count
    counted=$(on_sennit 3 "$build/pmpi_corners_$name" counts)
    echo "$name: counts: $counted"
    [ "$counted" = 'collectives by sennit: 3, by MPI itself: 1' ] || { echo "$name: not as many as expected"; exit 1; }
    # Of one rank, as MPICH that begins anew may wait for others for ever. So nothing here tries that communicators of
    # several ranks in a session are left to MPI.
    timeout 120 "$build/bin/sennit" exec --mpi -- "$mpi/bin/mpiexec" -n 1 "$build/pmpi_corners_$name" sessions || {
      echo "$name: sessions: fails on sennit"
      exit 1
    }
  fi
}

for mpi in "$@"; do
  echo "$(basename "$mpi") $("$mpi/bin/mpiexec" --version | grep -m 1 -o -E '[0-9]+\.[0-9.]+')"
  on_one "$(basename "$mpi")" mpi
  if [ -f "$mpi/include/mpi_abi.h" ]; then on_one "$(basename "$mpi")_abi" mpi_abi -DMPI_ABI; fi
done
echo "more bytes than an int counts: $(on_sennit 2 "$build/pmpi_corners_$(basename "$mpi")" large)"
