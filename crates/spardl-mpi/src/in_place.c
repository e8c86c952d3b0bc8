/* MPI_IN_PLACE is a macro with a cast, which bindgen does not translate, and differs between libraries. */
#include <mpi.h>

void *spardl_mpi_in_place(void) { return MPI_IN_PLACE; }
